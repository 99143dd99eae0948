"""Logs over nodes and attempts, the live picture, the curve in a line, many ranks in few rows."""

import io
import os
import pty
import re
import select
import signal
import sys
from dataclasses import replace

import pytest

from contract import events as ev
from contract.layout import Root, RunDir
from contract.profile import RankProfile, Timing
from supervisor.core.profiles import sentence
from supervisor.core.story import story
from supervisor.logs import NoSuchLogError, Wanted, follow, merged
from supervisor.profiles import cost
from supervisor.render import run_view, runs_view, show_run, show_runs
from supervisor.trend import read_trend, sparkline
from tests.supervisor.conftest import bare_run, wait_for
from tests.supervisor.schemas import check


def line(second: int, rank: object, words: str) -> str:
    return f"2026-01-01T00:00:{second:02d}.000Z g0001 r{rank} | {words}\n"


@pytest.fixture
def logged(root: Root) -> RunDir:
    run = bare_run(root)
    write(run, 1, "n1", line(1, 0, "one"), line(4, 0, "four"), "  of the same\n")
    write(run, 1, "n2", line(2, 1, "two"), line(3, "-", "three"))
    write(run, 2, "n1", line(9, 0, "nine"))
    return run


def write(run: RunDir, attempt: int, node: str, *lines: str) -> None:
    path = run.attempt(attempt).log(node)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(lines)


def said(lines) -> list[str]:
    return [text.rsplit("| ", 1)[-1].strip() for text in lines]


def test_all_nodes_and_attempts_are_one_log_by_time(logged) -> None:
    everything = list(merged(logged, Wanted(attempt=-1), 0))
    assert said(everything) == ["one", "two", "three", "four", "n1:   of the same", "nine"]
    assert everything[0].startswith("n1: ")
    assert said(merged(logged, Wanted(attempt=-1), 2)) == ["n1:   of the same", "nine"]
    assert said(merged(logged, Wanted(), 0)) == ["nine"], "the newest attempt, unless another is asked for"
    assert said(merged(logged, Wanted(attempt=1, node="n2"), 0)) == ["two", "three"]
    assert said(merged(logged, Wanted(attempt=1, rank=1), 0)) == ["two"]
    assert said(merged(logged, Wanted(attempt=-1, pattern=re.compile("n.ne$|^.*four"), rank=0), 0)) == [
        "four",
        "nine",
    ]


def test_a_rank_or_an_attempt_that_is_not_there_is_said(logged) -> None:
    with pytest.raises(NoSuchLogError, match="no rank 7 in the logs of attempts 1-2; ranks that wrote: 0-1"):
        list(merged(logged, Wanted(attempt=-1, rank=7), 0))
    with pytest.raises(NoSuchLogError, match="attempt 9 has no logs; attempts with logs: 1-2"):
        merged(logged, Wanted(attempt=9), 0)
    with pytest.raises(NoSuchLogError, match="attempt 1 has no log of node n7; nodes with logs: n1, n2"):
        merged(logged, Wanted(attempt=1, node="n7"), 0)
    write(logged, 3, "n1", line(9, "-", "no worker yet"))
    assert list(merged(logged, Wanted(rank=0), 0)) == [], "a rank of the run may have written nothing"
    assert list(merged(logged, Wanted(attempt=1, rank=0, pattern=re.compile("nothing")), 0)) == []


def test_what_profiling_costs_is_no_negative_number() -> None:
    noisy = RankProfile(
        run="r", attempt=1, generation=1, order="o", first_step=9, steps=2, rank=0, ranks=(0,),
        plain_s=0.3, profiled_s=0.15, stopped_s=0.1,
        timing=Timing(
            step_s=0.15, device="cpu", regions=(), covered=1.0, comm_s=0.0, exposed_s=0.0, operators=()
        ),
    )  # fmt: skip
    for language, words in (("en", "too few or too noisy"), ("zh", "太少或波动太大")):
        assert words in cost(noisy, language)
        assert "-50%" not in cost(noisy, language) + sentence(noisy, language)
        assert "+100%" in cost(replace(noisy, profiled_s=0.6), language)


def test_a_followed_log_goes_on_into_the_next_attempt_and_doubles_nothing(logged) -> None:
    written = iter(
        [
            lambda: write(logged, 2, "n1", line(11, 0, "eleven"), line(12, 0, "half")[:-3]),
            lambda: write(logged, 2, "n1", "lf\n"),
            lambda: (
                write(logged, 2, "n2", line(13, 1, "thirteen")),
                write(logged, 3, "n1", line(20, 0, "twenty")),
            ),
        ]
    )

    def wait() -> bool:
        step = next(written, None)
        if step is not None:
            step()
        return step is not None

    assert said(follow(logged, Wanted(), 20, wait)) == ["nine", "eleven", "half", "thirteen", "twenty"]


def test_a_followed_log_that_is_rotated_loses_and_doubles_nothing(logged) -> None:
    path = logged.attempt(2).log("n1")

    def rename() -> None:
        write(logged, 2, "n1", line(10, 0, "ten"))
        path.rename(path.with_name("n1.log.1"))  # before the reader has seen the last line

    def truncate() -> None:
        copy = path.with_name("n1.log.2")
        copy.write_bytes(path.read_bytes())
        os.truncate(path, 0)
        write(logged, 2, "n1", line(13, 0, "thirteen"))

    steps = iter([rename, lambda: write(logged, 2, "n1", line(11, 0, "eleven")), truncate])

    def wait() -> bool:
        step = next(steps, None)
        if step is not None:
            step()
        return step is not None

    assert said(follow(logged, Wanted(), 20, wait)) == ["nine", "ten", "eleven", "thirteen"]
    assert said(merged(logged, Wanted(), 0)) == ["nine", "ten", "eleven", "thirteen"], (
        "the old files count too"
    )


def test_every_line_is_an_object_for_programs(logged) -> None:
    write(logged, 2, "n2", line(10, 5, "WARNING slow | and broken"), "  of the same\n")
    found = [check("log-line", text) for text in merged(logged, Wanted(as_json=True), 0)]
    assert [(item["node"], item["rank"], item["level"], item["text"]) for item in found] == [
        ("n1", 0, None, "nine"),
        ("n2", 5, "warning", "WARNING slow | and broken"),
        ("n2", None, None, "  of the same"),
    ]
    assert {(item["attempt"], item["time"][:10]) for item in found[:2]} == {(2, "2026-01-01")}


def test_a_spike_is_seen_in_a_line_of_text(root) -> None:
    values = [1.0] * 1000
    values[500] = 9.0
    bars = sparkline(values)
    assert len(bars) == 40
    assert bars.count("█") == 1
    assert sparkline([]) == ""
    run = bare_run(root)
    assert read_trend(run) is None
    run.metrics_of(1, 1).write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3, "lo')
    trend = read_trend(run)
    assert (trend.first, trend.last, trend.loss) == (1, 2, (2.0,))


def facts_of(**changes) -> dict:
    """What `status` knows of a run."""
    return {
        "run": "r-1",
        "state": "running",
        "reason": "",
        "step": 6,
        "target_step": 9,
        "newest_checkpoint": None,
        "observe_only": False,
        "queue_problem": None,
        "save_problem": "",
        "journal_problems": [],
        "copies": [],
        "attempts": [],
        "ranks": [],
        "alerts": {"sent": 0, "pending": 0, "failed": 0},
        **changes,
    }


SAID = "sbatch: error: first\n  sbatch: error: second\r\n\x1b[31mthird"


def test_what_others_said_in_several_lines_stands_on_one(root, capsys) -> None:
    """A plain column, a terminal's table, one run and all of them, its story."""
    from rich.console import Console

    attempt = {"number": 1, "job_id": "7", "nodes": ["n1"], "generations": [{"reason": SAID}]}
    facts = facts_of(reason=SAID, save_problem=SAID, journal_problems=[SAID], attempts=[attempt])
    show_runs([facts], root.path, None, "en")
    show_run(facts, None, "en", None)
    plain = capsys.readouterr().out
    console = Console(width=400, file=io.StringIO(), record=True)
    console.print(run_view(facts, None, "en", None), runs_view([facts], root.path, None, "en"))
    bodies = (
        ev.RunCreated(run="r", config_digest="", version="0", target_steps=1, target_tokens=0),
        ev.SubmitFailed(attempt=1, reason=SAID, permanent=False),
        ev.StateChanged(state="failed", reason=SAID),
    )
    told = "\n".join(
        line
        for language in ("en", "zh")
        for line in story([ev.Event(seq=1, time=0.0, epoch=1, body=body) for body in bodies], language)
    )
    for shown, times in ((plain, 5), (console.export_text(), 5), (told, 4)):
        found = [line for line in shown.splitlines() if "first" in line]
        assert len(found) == times, shown
        assert all("second" in line and "third" in line for line in found), shown
        assert "\x1b[31m" not in shown


def test_thousands_of_ranks_are_told_by_where_they_stand() -> None:
    from rich.console import Console

    ranks = [{"rank": n, "node": f"n{n // 8}", "pid": n, "phase": "forward", "step": 7} for n in range(4096)]
    ranks[77] = {**ranks[77], "phase": "data", "step": 6}
    facts = facts_of(ranks=ranks)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(run_view(facts, None, "en", None))
    lines = console.export_text().splitlines()
    assert len(lines) < 15
    odd = next(number for number, text in enumerate(lines) if text.startswith("data"))
    assert lines[odd].split() == ["data", "6", "1", "77"], "the odd one stands first"
    assert lines[odd + 1].split() == ["forward", "7", "4095", "0-76,", "78-4095"]


def test_the_live_picture_shows_the_runs_until_interrupted(root, processes) -> None:
    bare_run(root, "live-1")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "ciuic", "status", "--watch", "--root", str(root.path)]
    environment = {**os.environ, "COLUMNS": "160"}
    shown = b""

    def drawn() -> bytes:
        nonlocal shown
        while select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 4096)
        return shown

    with open(ours, "rb", buffering=0), open(theirs, "rb", buffering=0):
        # A shell starts what runs in the background with SIGINT ignored, and that is inherited: the tests may run there.
        process = processes.start(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        wait_for(lambda: b"live-1" in drawn(), seconds=60, what="the run in the picture")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: drawn() and process.poll() is not None, seconds=30, what="the end")
        assert process.returncode == 0, drawn().decode(errors="replace")
