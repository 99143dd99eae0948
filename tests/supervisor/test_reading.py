"""What one look says: `status` and `explain` have seen no beat move."""

import os
import time
from contextvars import copy_context

import pytest
from typer.testing import CliRunner

from ciuic import application
from contract import events as ev
from contract.beat import Beat, BeatFile, WorkerBeat
from contract.control import Control, Go, create_go, write_control
from contract.exits import WorkerExit, write_exits
from contract.journal import Journal
from contract.states import AgentPhase, ControlPhase, Phase, RunState, VerdictKind
from supervisor.core import actions as do
from supervisor.core.reasons import chinese
from supervisor.outlook import as_seen, coming
from supervisor.reading import Reading, read
from tests.supervisor.conftest import bare_run, config_of

NODES = ("n0", "n1")


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch) -> None:
    """The cluster of other tests may still be up, and would say that it does not know this run's job."""
    monkeypatch.delenv("SLURM_CONF", raising=False)


@pytest.fixture
def run(root):
    """A Slurm run of two nodes that trained, as a supervisor recorded it."""
    made = bare_run(root, config=config_of(job={"executor": "slurm", "nodes": 2}))
    journal = Journal(made.journal, clock=time.time, epoch=0)
    journal.append(ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"))
    journal.append(ev.AttemptSubmitted(attempt=1, job_id="7"))
    journal.append(ev.StateChanged(state=RunState.RUNNING, reason="all 2 workers train"))
    journal.close()
    write_control(made, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    made.attempt(1).path.mkdir()
    create_go(made, Go(attempt=1, generation=1, members=NODES, master="n0", port=4000))
    made.attempt(1).resume(1).write_text('{"step": 0}')
    for rank, node in enumerate(NODES):
        worker = WorkerBeat(rank=rank, local_rank=0, pid=7, step=50, phase=Phase.FORWARD)
        file = BeatFile(made.attempt(1).beat(node))
        file.write(
            Beat(
                node=node,
                attempt=1,
                generation=1,
                sequence=50,
                phase=AgentPhase.RUNNING,
                pid=5,
                workers=(worker,),
            )
        )
        file.close()
    return made


def _aged(run, seconds: float, *nodes: str) -> None:
    for node in nodes:
        at = time.time() - seconds
        os.utime(run.attempt(1).beat(node), (at, at))


def _reading(run) -> Reading:
    return read(run, time.time(), time.monotonic(), slurm=None)


def _look(run):
    return _reading(run).verdict


def _crashed(run) -> None:
    end = WorkerExit(rank=1, node="n1", code=1, step=50, phase=Phase.FORWARD, ended_s=9.0, ordered=False)
    write_exits(run, 1, 1, "n1", (end,))


def test_beats_of_now_are_healthy_at_one_look(run) -> None:
    assert _look(run).kind is VerdictKind.HEALTHY


def test_all_nodes_died_together_and_one_look_does_not_call_it_healthy(run) -> None:
    _aged(run, 660.0, *NODES)
    verdict = _look(run)
    assert verdict.kind is VerdictKind.UNKNOWN
    assert "no node's beat has moved for 66" in verdict.reason
    assert "by the time of the beats' files" in verdict.reason
    assert "心跳" in chinese(verdict.reason, {})
    assert "beat" not in chinese(verdict.reason, {})


def test_one_node_whose_beat_is_old_does_not_train(run) -> None:
    _aged(run, 120.0, "n1")
    verdict = _look(run)
    assert verdict.kind is VerdictKind.UNKNOWN
    assert "the beat of n1" in verdict.reason


def test_a_crash_that_nobody_answers_says_what_a_supervisor_would_do(run) -> None:
    _crashed(run)
    reading = _reading(run)
    (order,) = [item for item in coming(reading, time.time()) if isinstance(item, do.Prepare)]
    assert order.members == NODES
    assert as_seen(reading, time.time()).history.state is RunState.RUNNING  # nobody recovers it


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", ("restart in place", "; once a supervisor runs: ", "supervise --root ")),
        ("zh", ("（节点 n1）退出", "原地重启", "；需要先启动看护进程：", "supervise --root ")),
    ],
)
def test_explain_of_a_crash_that_nobody_answers_names_the_command(run, root, lang, words) -> None:
    _crashed(run)
    said = copy_context().run(
        CliRunner().invoke, application(), ["explain", run.run_id, "--root", str(root.path), "--lang", lang]
    )
    coming_next = said.stdout.splitlines()[-1]
    assert all(part in coming_next for part in words), said.stdout


def test_the_headline_of_a_run_that_nobody_watches_is_what_the_look_shows(run) -> None:
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.append(ev.StateChanged(state=RunState.PENDING, reason="the first attempt"))
    journal.close()
    assert as_seen(_reading(run), time.time()).history.state is RunState.RUNNING
    _aged(run, 20.0, *NODES)  # silent for too long, and not yet so long that a supervisor would record it
    assert as_seen(_reading(run), time.time()).history.state is RunState.UNKNOWN
