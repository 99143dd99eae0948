"""A supervisor that cannot ask Slurm: it says so, and what needs no word of Slurm goes on."""

import time
from contextvars import copy_context
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from ciuic import application
from contract import events as ev
from contract.beat import Beat, BeatFile, WorkerBeat
from contract.control import Control, Go, create_go, read_control, write_control
from contract.fold import fold
from contract.journal import Journal, JournalReader
from contract.states import AgentPhase, ControlPhase, JobState, Phase, RunState
from slurm.queue import JobSeen
from supervisor.adapters.leadership import take
from supervisor.adapters.queues import Queues
from supervisor.core.reasons import chinese
from supervisor.daemon import make_world
from supervisor.tick import Supervision
from tests.supervisor.conftest import bare_run, config_of, wait_for

MEMBERS, SPARE = ("n0", "n1"), "n2"
WHY = "squeue gave no answer: fatal: Could not establish a configuration source"


class NoSlurm:
    """Every question fails."""

    def look(self, jobs):
        return {job.key: JobSeen(state=JobState.UNKNOWN, reason=WHY, job_id=job.job_id) for job in jobs}

    def cancel(self, job, *, force):
        raise AssertionError


class Scene:
    """A run of two nodes and a spare that trains, under a supervisor, second by second."""

    def __init__(self, root) -> None:
        self.now, self.tick_number, self.dead = 1000.0, 0, set()
        job = {"executor": "slurm", "nodes": 2, "spare_nodes": 1}
        self.run = run = bare_run(root, config=config_of(job=job, supervisor={"backoff_s": 0}))
        journal = Journal(run.journal, clock=time.time, epoch=0)
        journal.append(ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"))
        journal.append(ev.AttemptSubmitted(attempt=1, job_id="7"))
        journal.close()
        write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
        run.attempt(1).path.mkdir()
        create_go(run, Go(attempt=1, generation=1, members=MEMBERS, master="n0", port=4000))
        run.attempt(1).resume(1).write_text('{"step": 0}')
        self.files = {node: BeatFile(run.attempt(1).beat(node)) for node in (*MEMBERS, SPARE)}
        self.begun, leadership = time.time(), take(root)
        world = make_world(leadership, lambda text: None)
        self.leadership, self.queues = leadership, Queues(lambda: self.now, NoSlurm())
        world = replace(
            world,
            queues=self.queues,
            monotonic=lambda: self.now,
            clock=lambda: self.begun + self.now - 1000.0,
        )
        self.supervision = Supervision(run, world)

    def close(self) -> None:
        self.supervision.release()
        self.leadership.release()
        for file in self.files.values():
            file.close()

    def second(self) -> None:
        self.now += 1.0
        self.tick_number += 1
        for node, file in self.files.items():
            if node not in self.dead:
                file.write(self._beat(node))
        self.supervision.tick()

    def seconds(self, number: int) -> None:
        for _ in range(number):
            self.second()

    def _beat(self, node: str) -> Beat:
        step = self.tick_number
        ranks = [MEMBERS.index(node)] if node in MEMBERS else []
        return Beat(
            node=node,
            attempt=1,
            generation=1,
            sequence=step,
            phase=AgentPhase.RUNNING if ranks else AgentPhase.READY,
            pid=5,
            workers=tuple(
                WorkerBeat(rank=rank, local_rank=0, pid=7, step=step, phase=Phase.FORWARD) for rank in ranks
            ),
        )

    @property
    def bodies(self) -> list[ev.Body]:
        return [event.body for event in JournalReader(self.run.journal).new()]

    @property
    def history(self):
        return fold(JournalReader(self.run.journal).new())


@pytest.fixture
def scene(root):
    made = Scene(root)
    yield made
    made.close()


def test_it_is_said_and_the_state_is_recorded_all_the_same(scene, root) -> None:
    scene.seconds(25)
    assert scene.history.queue_silent is None
    assert scene.history.state is RunState.PENDING
    scene.seconds(10)
    assert scene.history.state is RunState.RUNNING
    since, why = scene.history.queue_silent
    assert since == pytest.approx(scene.begun + 1.0, abs=2.0)
    assert why == WHY
    scene.seconds(5)
    assert sum(isinstance(body, ev.QueueSilent) for body in scene.bodies) == 1
    for command in ("status", "explain"):
        said = (
            copy_context()
            .run(CliRunner().invoke, application(), [command, scene.run.run_id, "--root", str(root.path)])
            .stdout
        )
        assert "has not been able to ask the queue since" in said
        assert WHY in said


def test_a_lost_node_is_replaced_by_the_spare_without_a_word_of_the_queue(scene) -> None:
    scene.seconds(35)
    scene.dead.add("n1")
    scene.seconds(20)
    control = read_control(scene.run)
    assert (control.generation, set(control.members)) == (2, {"n0", SPARE})
    assert scene.history.state is RunState.RECOVERING


def test_a_loss_without_a_spare_submits_and_cancels_nothing(scene) -> None:
    scene.dead.add(SPARE)
    scene.seconds(35)
    scene.dead.add("n1")
    scene.seconds(60)
    assert read_control(scene.run).at == (1, 1)
    assert scene.history.state is RunState.RECOVERING
    acts = (ev.CancelIntended, ev.AttemptEnded)
    assert not [body for body in scene.bodies if isinstance(body, acts)]
    assert len(scene.history.attempts) == 1


def test_an_answer_ends_it(scene) -> None:
    scene.seconds(35)
    answer = lambda jobs: {job.key: JobSeen(state=JobState.RUNNING, job_id="7") for job in jobs}  # noqa: E731
    scene.queues._slurm.look = answer

    def answered() -> bool:
        scene.second()
        return scene.history.queue_silent is None

    wait_for(answered)
    assert isinstance(
        next(body for body in scene.bodies if isinstance(body, ev.QueueAnswered)), ev.QueueAnswered
    )


def test_the_reason_is_told_in_chinese() -> None:
    told = chinese(f"{WHY}; SLURM_CONF is not set for the process that asks", {})
    assert "squeue 没有应答" in told
    assert "没有设置 SLURM_CONF" in told
