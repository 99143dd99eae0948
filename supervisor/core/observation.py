"""What one look at a run saw. Plain values: adapters fill them, judge and decide read them.

Everything that can fail to be measured can say so: None or UNKNOWN is "not measured", never "dead" (rule 3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from contract.beat import Beat, WorkerBeat
from contract.control import Control
from contract.copies.report import Report
from contract.copies.target import Kind
from contract.exits import WorkerExit
from contract.requests import Request
from contract.states import JobState
from supervisor.core.curve import CurveLook


@dataclass(frozen=True, kw_only=True)
class NodeSeen:
    """One node of the attempt.

    `beat` is its newest readable beat. `silent_s`: seconds on the observer's clock since the beat's sequence
    moved, counted only while the observer itself was awake. `alive`: whether the agent holds its flock; None
    where flock does not tell (another host). `moved`: whether this observer has seen its beat move; a beat that
    was there before may be a dead agent's last.
    """

    node: str
    beat: Beat | None
    silent_s: float
    alive: bool | None = None
    moved: bool = True


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """What the queue says of the attempt's job, and how old (s) that answer is. UNKNOWN: for how long it gave none.

    `nodes`: those that the job has, or, while it is ending, has not given back yet; () where the queue does not
    tell. `dead`: of these, the ones that do not answer the queue; asked for while it is ending or when a node ended it.
    `failed`: nodes that could not start their part of the job (a failed prolog).
    """

    state: JobState
    reason: str = ""
    job_id: str = ""
    age_s: float = 0.0
    nodes: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckpointLook:
    """The newest valid checkpoint of the lineage (shallow check). `older`: steps of the valid ones before it, a few."""

    step: int
    attempt: int
    generation: int
    path: str
    older: tuple[int, ...] = ()

    def up_to(self, step: int) -> int | None:
        """The newest step of a checkpoint that is not beyond this one."""
        return next((found for found in (self.step, *self.older) if found <= step), None)


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Another run of the same supervisor that has failed. Times are the journals'.

    `restarting_s`: seconds since its restart was ordered, while that is under way; else None.
    """

    run: str
    cause: str
    failed_at: float
    restarting_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of a log that the catalogue knows (`entry`). `remark`: nothing ended by it; it is context only."""

    entry: str
    text: str
    node: str = ""
    rank: int | None = None
    remark: bool = False


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One look at one run, at the (attempt, generation) that control.json names; 0 where there is none yet.

    `members`, `master`, `port`: from control.json at go, for generation 1 from its go file; empty before.
    `resume_step`: where rank 0 recorded that this generation resumed; None before it did. `restored_from`: the place
    whose copy it brought back for that, "" when the checkpoint was here.
    `exits`: records of this generation. `watched_s`: seconds for which this observer has been looking at this
    generation without a gap; eyes that were shut judge nothing. `running_s`: the same for the job being RUNNING
    (0 while it is not; time in the queue is no delay). `problems`: what could not be read, in words.
    `claim_job`: job that owns the attempt, "" before the claim. `job_lines`: what Slurm wrote into the job's output
    about its end, read once the job is over. `logs`: what the logs said of this generation, the first failures
    first. `used`: the highest attempt whose directory shows that it was handed in.
    `curve`: what the run's metrics say of its pace and its numbers; None while there are too few.
    `lag_s`: by how much (s) what other hosts write may be late here, as their beats show it. `unlisted_ends`,
    `unlisted_beating`: ends of workers and agents that beat, which a shortened observation has left out.
    """

    attempt: int
    generation: int
    job: JobLook
    control: Control | None = None
    claim_job: str = ""
    members: tuple[str, ...] = ()
    master: str = ""
    port: int = 0
    nodes: tuple[NodeSeen, ...] = ()
    exits: tuple[WorkerExit, ...] = ()
    resume_step: int | None = None
    restored_from: str = ""
    checkpoint: CheckpointLook | None = None
    requests: tuple[Request, ...] = ()
    usual: Mapping[str, float] = field(
        default_factory=dict
    )  # phase word → usual wait (s), over all generations
    watched_s: float = 0.0
    running_s: float = 0.0
    problems: tuple[str, ...] = ()
    job_lines: tuple[str, ...] = ()
    logs: tuple[LogLine, ...] = ()
    used: int = 0
    copies: Mapping[Kind, Report] = field(default_factory=dict)  # what the copiers last said of themselves
    curve: CurveLook | None = None
    lag_s: float = 0.0
    unlisted_ends: int = 0
    unlisted_beating: int = 0
    neighbours: tuple[Neighbour, ...] = ()  # looked at only while this run has failed

    @cached_property
    def workers(self) -> tuple[tuple[NodeSeen, WorkerBeat], ...]:
        """Workers of this generation, with their nodes, by rank. Beats of other generations do not count."""
        found = [
            (seen, worker)
            for seen in self.nodes
            if seen.beat and (seen.beat.attempt, seen.beat.generation) == (self.attempt, self.generation)
            for worker in seen.beat.workers
        ]
        return tuple(sorted(found, key=lambda pair: pair[1].rank))

    @property
    def step(self) -> int:
        """Steps that every worker has completed; -1 before all of them report."""
        return min((worker.step for _, worker in self.workers), default=-1)
