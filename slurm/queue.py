"""What the queue knows of our jobs, and how a job is ended. One protocol; this machine and Slurm behind it."""

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from contract.beat import Beat, read_beat
from contract.control import read_claim
from contract.files import lock_is_held
from contract.layout import RunDir
from contract.states import ExitCode, JobState
from slurm import nodes, processes, squeue
from slurm.job import JobRecord, read_job
from slurm.patience import Patience, unheard
from slurm.request import attempt_tag
from slurm.words import Row

CANCEL_S = 5.0  # each of its two questions


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of ours. `job_id` may be "" while its submission is in doubt."""

    run: RunDir
    attempt: int
    job_id: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return (self.run.run_id, self.attempt)


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """What the queue says of one job. `exit`: its exit code as the queue writes it, "" when it does not know.

    `nodes`: those that it has, or, while it is ending, has not given back yet; () where the queue does not tell.
    `dead`: of these, the ones that do not answer the queue; asked for while the job is ending or when a node ended it.
    `failed`: nodes that could not start their part of it (a failed prolog).
    """

    state: JobState
    reason: str = ""
    job_id: str = ""
    exit: str = ""
    nodes: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class QueueClient(Protocol):
    """Where jobs run."""

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        """State of each of these jobs, by `Job.key`. What cannot be learned is UNKNOWN; nothing is raised."""
        ...

    def cancel(self, job: Job, *, force: bool) -> bool:
        """Ask the job to end; with `force`, make it. `look` tells when it is over.

        Returns soon: False when the queue did not hear of it, and must be asked again.
        """
        ...


class LocalQueue:
    """Jobs on this machine. Life is the agents' flocks; /proc is asked about what has no agent yet."""

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        return {job.key: self._look(job) for job in jobs}

    def cancel(self, job: Job, *, force: bool) -> bool:
        found = processes.find(job.run, job.attempt)
        # First whoever could start more. submitit's tasks swallow SIGTERM, and have nothing to clean up.
        for item in sorted(found, key=lambda item: list(processes.Role).index(item.role)):
            gently = item.role is processes.Role.AGENT and not force
            processes.end(job.run, job.attempt, item, signal.SIGTERM if gently else signal.SIGKILL)
        return True

    def _look(self, job: Job) -> JobSeen:
        try:
            return self._look_closely(job)
        except (OSError, ValueError) as error:
            return JobSeen(state=JobState.UNKNOWN, reason=str(error), job_id=job.job_id)

    def _look_closely(self, job: Job) -> JobSeen:
        place = job.run.attempt(job.attempt)
        record = read_job(job.run, job.attempt)
        job_id = job.job_id or (record.job_id if record else "")
        names = sorted(place.alive.iterdir()) if place.alive.is_dir() else []
        held = [path.name for path in names if lock_is_held(path)]
        if held:
            reason = f"agents alive: {', '.join(held)}"
            return JobSeen(state=JobState.RUNNING, reason=reason, job_id=job_id)
        if record is None:
            return JobSeen(state=JobState.GONE, reason="never handed in", job_id=job_id)
        if not record.this_boot and not record.rebooted:
            return JobSeen(state=JobState.UNKNOWN, reason=f"runs on {record.host}, not here", job_id=job_id)
        return self._without_agents(job, record, job_id, had_agents=bool(names))

    def _without_agents(self, job: Job, record: JobRecord, job_id: str, *, had_agents: bool) -> JobSeen:
        left = processes.find(job.run, job.attempt) if record.this_boot else []
        if left and had_agents and all(item.role is processes.Role.CONTROLLER for item in left):
            return JobSeen(state=JobState.ENDING, reason="the controller is about to end", job_id=job_id)
        if left:  # agents that have not taken their lock yet
            return JobSeen(state=JobState.PENDING, reason="the agents are starting", job_id=job_id)
        beats = read_beats(job.run, job.attempt)
        codes = sorted({beat.done_code for beat in beats if beat.done_code is not None})
        ended_ok = codes == [ExitCode.FINISHED] and all(beat.done_code is not None for beat in beats)
        state = JobState.ENDED_OK if ended_ok else JobState.ENDED_FAILED if beats else JobState.GONE
        reason = "no process of it is left" if record.this_boot else "the machine has booted since"
        return JobSeen(state=state, reason=reason, job_id=job_id, exit=str(codes[-1]) if codes else "")


def read_beats(run: RunDir, attempt: int) -> list[Beat]:
    """The newest readable beat of every node of the attempt."""
    with contextlib.suppress(FileNotFoundError):
        paths = sorted(run.attempt(attempt).beats.iterdir())
        return [beat for path in paths if (beat := read_beat(path)) is not None]
    return []


class SlurmQueue:
    """Slurm, asked through the text of its clients: once for all jobs, and for each one that is not listed."""

    def __init__(self, ask: squeue.Ask = squeue.ask) -> None:
        self._ask = ask
        self._own_patience = ask is squeue.ask

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        rows = squeue.jobs_or_reason(self._ask)
        if isinstance(rows, str):
            return {job.key: JobSeen(state=JobState.UNKNOWN, reason=rows, job_id=job.job_id) for job in jobs}
        return {job.key: self._seen(job, rows) for job in jobs}

    def cancel(self, job: Job, *, force: bool) -> bool:
        how = ["--signal=KILL", "--full"] if force else []
        # A submission in doubt may have got in twice: nothing that carries the attempt's tag may stay.
        rows = squeue.list_jobs(self._hurried())
        others = [row.job_id for row in of_attempt(job, rows or []) if row.state.alive]
        ids = list(dict.fromkeys([*([job.job_id] if job.job_id else []), *others]))
        if not ids:
            return rows is not None
        return not unheard(self._hurried()(["scancel", *how, *ids]))

    def _hurried(self) -> squeue.Ask:
        """For questions on whose answer a round waits."""
        return Patience(CANCEL_S) if self._own_patience else self._ask

    def _seen(self, job: Job, rows: Sequence[Row]) -> JobSeen:
        row = _choose(job, of_attempt(job, rows))
        if row is not None and row.state is JobState.UNKNOWN:
            row = squeue.in_full(row, self._ask)
        if row is not None and row.state.ended:  # squeue does not tell the exit code
            row = squeue.show_job(row.job_id, self._ask) or row
        if row is None and job.job_id:
            row = squeue.show_job(job.job_id, self._ask)
            if row is None:
                return JobSeen(state=JobState.UNKNOWN, reason="scontrol gave no answer", job_id=job.job_id)
            if row.name not in {"", job.run.run_id}:  # a controller that lost its state counts from 1 again
                reason = f"job {row.job_id} is {row.name} now: the number was given away again"
                return JobSeen(state=JobState.GONE, reason=reason, job_id=job.job_id)
        if row is None:
            return JobSeen(state=JobState.GONE, reason="no job with the attempt's tag")
        seen = JobSeen(
            state=row.state,
            reason=row.reason,
            job_id=row.job_id,
            exit=row.exit,
            nodes=row.nodes,
            dead=self._dead(row),
        )
        return self._cancelled_by_prolog(job, seen) if row.state is JobState.ENDED_CANCELLED else seen

    def _cancelled_by_prolog(self, job: Job, seen: JobSeen) -> JobSeen:
        """A job that must not be requeued is cancelled by Slurm when a prolog fails: that is nobody's wish.

        The node is drained with that reason; where an agent of ours has come to life the prolog had passed.
        """
        known = nodes.list_nodes(names=seen.nodes, ask=self._ask) or {} if seen.nodes else {}
        failed = tuple(
            name
            for name in seen.nodes
            if name in known
            and known[name].failed_prolog
            and not job.run.attempt(job.attempt).alive_of(name).exists()
        )
        if not failed:
            return seen
        reason = f"{seen.reason}, by Slurm: the prolog failed on {', '.join(failed)}"
        return replace(seen, state=JobState.ENDED_FAILED, reason=reason, failed=failed)

    def _dead(self, row: Row) -> tuple[str, ...]:
        if row.state not in {JobState.ENDING, JobState.ENDED_NODE} or not row.nodes:
            return ()
        known = nodes.list_nodes(names=row.nodes, ask=self._ask) or {}
        dead = [name for name in row.nodes if name in known and not known[name].responds]
        # A node that is back by now answers again, and still was what ended the job.
        ended_it = [row.failed_node] if row.failed_node and row.state is JobState.ENDED_NODE else []
        return tuple(dict.fromkeys([*dead, *ended_it]))


def of_attempt(job: Job, rows: Sequence[Row]) -> list[Row]:
    """The rows of this attempt: by its job id or by its tag. More than one after a submission that seemed to fail."""
    tag, name = attempt_tag(job.run.run_id, job.attempt), job.run.run_id
    return [
        row
        for row in rows
        if row.comment == tag or (job.job_id and (row.job_id, row.name) == (job.job_id, name))
    ]


def _choose(job: Job, rows: Sequence[Row]) -> Row | None:
    """The one that stands for the attempt: a live one before one that is over, the claimed one before all others."""
    if len(rows) < 2:
        return rows[0] if rows else None
    claimed = ""
    with contextlib.suppress(OSError, ValueError):
        claim = read_claim(job.run, job.attempt)
        claimed = claim.job_id if claim else ""
    return min(rows, key=lambda row: (not row.state.alive, row.job_id != claimed, row.job_id != job.job_id))
