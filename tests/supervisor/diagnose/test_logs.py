"""Whole logs in the shapes that launchers write: class, rank, node, retry."""

import tomllib
from pathlib import Path

import pytest

from supervisor.core.causes import End, explain
from supervisor.core.phrases import CAUSES, word
from supervisor.diagnose.live import diagnose_lines
from supervisor.diagnose.run import diagnose

LOGS = Path(__file__).parents[2] / "data" / "logs"
EXPECTED = tomllib.loads((LOGS / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_log(name):
    expected = EXPECTED[name]
    outcome = diagnose([str(LOGS / name)])
    assert outcome.diagnosis is not None
    assert not outcome.problems
    facts = outcome.diagnosis.json()
    found = {"class": facts["class"], "rank": facts["suspect_rank"], "node": facts["blame_node"]}
    assert found == {
        "class": expected["class"],
        "rank": expected.get("rank"),
        "node": expected.get("node"),
    }, facts
    for key, of in (("retry", "retry"), ("cause", "cause"), ("line", "line")):
        if key in expected:
            assert facts[of] == expected[key], facts
    assert (facts["file"] is None) == (expected["class"] == "none")


def test_every_log_is_expected():
    assert {path.name for path in LOGS.iterdir()} - {"expected.toml"} == set(EXPECTED)


FULL = "OSError: [Errno 28] No space left on device"
WRITER = "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 12352 vs 12240"
BETWEEN = "\nDuring handling of the above exception, another exception occurred:\n"


def trace(error: str) -> list[str]:
    return ["Traceback (most recent call last):", '  File "save.py", line 7, in save', "    write()", error]


@pytest.mark.parametrize("order", [(WRITER, FULL), (FULL, WRITER)])
@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (FULL, "disk-full"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota-exceeded"),
        ("OSError: [Errno 5] Input/output error", "io-error"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "cuda-out-of-memory"),
    ],
)
@pytest.mark.parametrize("between", [[BETWEEN], []])
def test_why_a_save_failed_wins_over_that_it_failed(tmp_path, order, reason, name, between) -> None:
    first, second = (reason if item is FULL else item for item in order)
    lines = ["step 5 loss 2", *trace(first), *between, *trace(second)]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    assert diagnose([str(log)]).diagnosis.entry.name == name
    assert diagnose_lines(tuple(lines)).entry.name == name
    ended = End(
        rank=0,
        node="n",
        code=1,
        step=5,
        phase="save",
        recorded=True,
        exception_type=second.partition(":")[0],
        exception_text=second.partition(": ")[2],
        lines=tuple(lines),
    )
    assert explain(ended).entry == name


def test_what_breaks_while_a_failed_save_is_handled_explains_nothing() -> None:
    lines = [*trace(WRITER), BETWEEN, *trace("KeyError: 'step'")]
    assert diagnose_lines(tuple(lines)).entry.name == "checkpoint-write-failed"


def test_a_failed_write_is_not_headed_as_a_missing_checkpoint() -> None:
    assert word(CAUSES, "checkpoint", "en") == "a checkpoint could not be read or written"
