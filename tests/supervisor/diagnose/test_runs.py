"""A run directory, an attempt and a node's log say the same; what is no log is not read as one."""

import json
import shutil
from pathlib import Path

import pytest

from supervisor.diagnose.run import diagnose

LOGS = Path(__file__).parents[2] / "data" / "logs"
RUNS = {
    "ciuic-fail": "python-exception",
    "ciuic-nofile": "command-file-missing",
    "ciuic-nocmd": "command-missing",
}


def _facts(path):
    return diagnose([str(path)]).diagnosis.json()


@pytest.mark.parametrize("name", RUNS)
def test_file_attempt_run_and_records_agree(name, tmp_path):
    shutil.copytree(LOGS / name, tmp_path / "runs" / name)
    run = tmp_path / "runs" / name
    attempt = run / "attempts" / "0001"
    log = attempt / "logs" / "0.log"
    found = [_facts(path) for path in (log, attempt, run / "attempts", run, tmp_path / "runs")]
    assert all(facts == found[0] for facts in found)
    assert (found[0]["cause"], found[0]["suspect_rank"], found[0]["file"]) == (RUNS[name], 0, str(log))
    record = _facts(attempt / "exits" / "g0001-0.json")
    log.unlink()
    for facts in (record, _facts(run)):
        assert (facts["cause"], facts["suspect_rank"]) == (RUNS[name], 0)
        assert "{" not in facts["text"]


def test_only_logs_of_a_run_are_read(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(LOGS / "ciuic-killed", run)
    before = _facts(run)
    for name in ("checkpoints/latest", "metrics/0.txt", "run.toml", "x.py", "attempts/0001/beats/0"):
        path = run / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    assert _facts(run) == before


def test_the_newest_attempt_counts(tmp_path):
    shutil.copytree(LOGS / "ciuic-fail", tmp_path, dirs_exist_ok=True)
    log = tmp_path / "attempts" / "0002" / "logs" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-11-30T16:39:09.000Z g0001 r- | leaving with 0: all are done\n")
    assert _facts(tmp_path)["class"] == "none"
    log.write_text("2026-11-30T16:39:09.000Z g0001 r- | rank 3 ended: SIGSEGV at step 9, data\n")
    assert (_facts(tmp_path)["class"], _facts(tmp_path)["suspect_rank"]) == ("signal", 3)


def test_an_odd_record_is_read_as_it_is(tmp_path):
    path = tmp_path / "g0001-0.json"
    for text in ("[]", "{", '{"workers": [{"rank": 0}]}'):
        path.write_text(text)
        assert not diagnose([str(path)]).problems


def test_a_record_tells_exceptions_and_signals(tmp_path):
    path = tmp_path / "g0001-0.json"
    row = {
        "rank": 2,
        "ordered": False,
        "step": 3,
        "phase": "data",
        "exception_text": "boom",
        "last_lines": [],
    }
    for code, kind, cause in ((1, "ValueError", "traceback"), (-11, "", "signal"), (-99, "", "unexplained")):
        path.write_text(json.dumps({"workers": [{**row, "code": code, "exception_type": kind}]}))
        assert _facts(path)["class"] == cause


def test_the_agents_word_ends_a_traceback(tmp_path):
    """The next generation's output is no part of the message."""
    path = tmp_path / "log"
    time = "2026-11-30T13:01:02.123Z"
    path.write_text(
        f"{time} g0001 r0 | Traceback (most recent call last):\n"
        f"{time} g0001 r0 | ValueError: boom 你好\n"
        f"{time} g0001 r- | rank 0 ended: exit code 1 at step 0, unknown\n"
        f"{time} g0002 r0 | the device is out of memory no more\n",
        encoding="utf-8",
    )
    facts = _facts(path)
    assert (facts["class"], facts["suspect_rank"], facts["text"]) == ("traceback", 0, "ValueError: boom 你好")
