"""Observations and histories for table tests: a healthy run, changed in one place."""

from dataclasses import replace

from contract import events as ev
from contract.beat import Beat, WorkerBeat
from contract.control import Control
from contract.exits import WorkerExit
from contract.fold import fold
from contract.history import History
from contract.states import AgentPhase, ControlPhase, JobState, Phase
from supervisor.core.observation import JobLook, NodeSeen, Observation

NOW = 10_000.0


def events(*bodies: ev.Body, at: float = 9_000.0, epoch: int = 1) -> list[ev.Event]:
    return [
        ev.Event(seq=number, time=at + number, epoch=epoch, body=body)
        for number, body in enumerate(bodies, start=1)
    ]


BEGUN = (
    ev.RunCreated(run="r", config_digest="", version="0", target_steps=100, target_tokens=0),
    ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"),
    ev.AttemptSubmitted(attempt=1, job_id="77"),
    ev.GenerationWent(attempt=1, generation=1, members=("n0", "n1"), master="n0", port=4000),
    ev.GenerationResumed(attempt=1, generation=1, step=0),
    ev.StateChanged(state="running", reason="all train"),
)


def history(*more: ev.Body) -> History:
    return fold(events(*BEGUN, *more))


def failure(**changes) -> ev.Judged:
    base = ev.Judged(
        attempt=1,
        generation=1,
        verdict="crashed",
        cause="traceback",
        reason="rank 1 on n1 failed with exit code 1: RuntimeError: bug",
        step=7,
        signature="traceback|RuntimeError|bug",
        suspects=(1,),
        nodes=("n1",),
        lines=("RuntimeError: bug",),
    )
    return replace(base, **changes)


def worker(rank: int, **changes) -> WorkerBeat:
    return replace(
        WorkerBeat(rank=rank, local_rank=0, pid=100 + rank, step=10, phase=Phase.FORWARD, idle_s=0.2),
        **changes,
    )


def node(
    number: int, *workers: WorkerBeat, silent_s: float = 0.4, alive: bool | None = None, **beat
) -> NodeSeen:
    values = {
        "node": f"n{number}",
        "attempt": 1,
        "generation": 1,
        "sequence": 50,
        "phase": AgentPhase.RUNNING,
        "ready_for": 1,
        "address": f"10.0.0.{number}",
        "port": 4000,
        "workers": workers or (worker(number),),
    }
    return NodeSeen(node=f"n{number}", beat=Beat(**(values | beat)), silent_s=silent_s, alive=alive)


def bare(number: int, **beat) -> NodeSeen:
    """A node whose agent has no workers."""
    found = node(number, **beat)
    return replace(found, beat=replace(found.beat, workers=()))


def control(**changes) -> Control:
    return replace(Control(attempt=1, generation=1, phase=ControlPhase.PREPARE), **changes)


def seen(*nodes: NodeSeen, **changes) -> Observation:
    base = Observation(
        attempt=1,
        generation=1,
        job=JobLook(state=JobState.RUNNING, job_id="77"),
        control=control(),
        claim_job="77",
        members=("n0", "n1"),
        master="n0",
        port=4000,
        nodes=nodes or (node(0), node(1)),
        resume_step=0,
        usual={"forward": 0.5, "backward": 1.0},
        watched_s=600.0,
        running_s=600.0,
    )
    return replace(base, **changes)


def exit_of(rank: int, code: int, **changes) -> WorkerExit:
    base = WorkerExit(
        rank=rank,
        node=f"n{rank}",
        code=code,
        ended_s=100.0,
        ordered=False,
        step=10,
        phase=Phase.FORWARD,
    )
    return replace(base, **changes)
