"""Observations of the simulated run, as the supervisor's adapters would make them.

Judgement gets a window: the nodes concerned and two that are well. It is the same for the other 2,045, and looking
at each of their workers is what would take the time. Decisions get every node.
"""

from collections.abc import Iterable
from dataclasses import replace

from contract.beat import Beat, WorkerBeat
from contract.control import Control
from contract.exits import WorkerExit
from contract.states import AgentPhase, ControlPhase, ExitCode, JobState, Phase
from supervisor.core.observation import JobLook, NodeSeen, Observation
from supervisor.simulate.scenario import Kind

_LONG_S = 1e7  # how long the observer has been looking: longer than any limit
JOB_ID = "1"


def seen(node: str, attempt: int, generation: int = 1, *workers: WorkerBeat) -> NodeSeen:
    """A node whose agent beats."""
    beat = Beat(
        node=node,
        attempt=attempt,
        generation=generation,
        sequence=1,
        phase=AgentPhase.RUNNING,
        ready_for=generation,
        address=node,
        port=1,
        workers=workers,
    )
    return NodeSeen(node=node, beat=beat, silent_s=0.0)


def whole(
    at: tuple[int, int],
    job: JobLook,
    members: tuple[str, ...],
    nodes: Iterable[NodeSeen],
    resume_step: int | None,
) -> Observation:
    """The run as decisions see it: every node, without workers."""
    return Observation(
        attempt=at[0],
        generation=at[1],
        job=job,
        control=Control(attempt=at[0], generation=at[1], phase=ControlPhase.GO, members=members),
        members=members,
        master=members[0] if members else "",
        port=1,
        nodes=tuple(nodes),
        resume_step=resume_step,
        watched_s=_LONG_S,
        running_s=_LONG_S,
    )


def training(
    at: tuple[int, int], nodes: tuple[str, ...], step: int, resume_step: int, usual_s: float
) -> Observation:
    """These nodes train, all well; `usual_s` is the longest standstill (s) inside a step that is usual."""
    workers = [
        WorkerBeat(rank=rank, local_rank=0, pid=1, step=step, phase=Phase.BACKWARD)
        for rank, _ in enumerate(nodes)
    ]
    look = whole(
        at,
        JobLook(state=JobState.RUNNING, job_id=JOB_ID),
        nodes,
        (seen(node, at[0], at[1], worker) for node, worker in zip(nodes, workers, strict=True)),
        resume_step,
    )
    return replace(look, claim_job=JOB_ID, usual={Phase.FORWARD.word: usual_s, Phase.BACKWARD.word: usual_s})


def failing(look: Observation, kind: Kind, hit: tuple[str, ...], age_s: float) -> Observation:
    """The same some time after a fault hit these of its nodes."""
    match kind:
        case Kind.CRASH:
            return _ended(
                look, hit, 1, "RuntimeError", "CUDA error: an illegal memory access was encountered"
            )
        case Kind.SDC:
            return _ended(look, hit, ExitCode.NUMERICS, "", "")
        case Kind.NODE if len(hit) == len(look.nodes):
            # Nobody is left to tell silence from a silent file system: Slurm's word is awaited.
            return replace(
                look, nodes=_with(look, hit, silent_s=age_s), job=replace(look.job, state=JobState.ENDED_NODE)
            )
        case Kind.NODE:
            return replace(look, nodes=_with(look, hit, silent_s=age_s))
        case Kind.SLOW:
            left = tuple(item.node for item in look.nodes if item.node not in hit)
            return replace(look, job=replace(look.job, nodes=left))
        case Kind.HANG:
            return replace(
                look, nodes=tuple(_idle(item, age_s, behind=item.node in hit) for item in look.nodes)
            )


def saved(look: Observation) -> Observation:
    """All workers have saved before the time limit and left."""
    return _ended(look, tuple(item.node for item in look.nodes), ExitCode.SAVED, "", "")


def _ended(look: Observation, hit: tuple[str, ...], code: int, exception: str, text: str) -> Observation:
    workers = {item.node: worker for item, worker in look.workers}
    records = tuple(
        WorkerExit(
            rank=workers[node].rank,
            node=node,
            code=code,
            ended_s=1.0,
            ordered=False,
            step=workers[node].step,
            phase=Phase.BACKWARD,
            exception_type=exception,
            exception_text=text,
        )
        for node in hit
    )
    return replace(look, exits=records)


def _with(look: Observation, hit: tuple[str, ...], *, silent_s: float) -> tuple[NodeSeen, ...]:
    return tuple(replace(item, silent_s=silent_s) if item.node in hit else item for item in look.nodes)


def _idle(item: NodeSeen, idle_s: float, *, behind: bool) -> NodeSeen:
    """The one behind stands still in its forward pass; the others wait for it in the next one."""
    assert item.beat is not None
    phase = Phase.FORWARD if behind else Phase.BACKWARD
    workers = tuple(replace(worker, phase=phase, idle_s=idle_s) for worker in item.beat.workers)
    return replace(item, beat=replace(item.beat, workers=workers))
