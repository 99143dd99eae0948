"""What the queue knows of our jobs, and how a job is ended. One protocol; this machine and Slurm behind it."""

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from contract.beat import Beat, read_beat
from contract.config import RunConfig
from contract.files import lock_is_held
from contract.layout import RunDir
from contract.states import ExitCode, JobState
from slurm import processes, squeue
from slurm.job import JobRecord, read_job
from slurm.request import attempt_tag


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
    """What the queue says of one job. `exit`: its exit code as the queue writes it, "" when it does not know."""

    state: JobState
    reason: str = ""
    job_id: str = ""
    exit: str = ""


class QueueClient(Protocol):
    """Where jobs run."""

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        """State of each of these jobs, by `Job.key`. What cannot be learned is UNKNOWN; nothing is raised."""
        ...

    def cancel(self, job: Job, *, force: bool) -> None:
        """Ask the job to end; with `force`, make it. Returns at once: `look` tells when it is over."""
        ...


def queue_for(config: RunConfig) -> QueueClient:
    """The client for this run's executor."""
    return SlurmQueue() if config.job.executor == "slurm" else LocalQueue()


class LocalQueue:
    """Jobs on this machine. Life is the agents' flocks; /proc is asked about what has no agent yet."""

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        return {job.key: self._look(job) for job in jobs}

    def cancel(self, job: Job, *, force: bool) -> None:
        found = processes.find(job.run, job.attempt)
        # First whoever could start more. submitit's tasks swallow SIGTERM, and have nothing to clean up.
        for item in sorted(found, key=lambda item: list(processes.Role).index(item.role)):
            gently = item.role is processes.Role.AGENT and not force
            processes.end(job.run, job.attempt, item, signal.SIGTERM if gently else signal.SIGKILL)

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

    def look(self, jobs: Sequence[Job]) -> Mapping[tuple[str, int], JobSeen]:
        rows = squeue.list_jobs(self._ask)
        if rows is None:
            return {
                job.key: JobSeen(state=JobState.UNKNOWN, reason="squeue gave no answer", job_id=job.job_id)
                for job in jobs
            }
        by_id = {row.job_id: row for row in rows}
        by_tag = {row.comment: row for row in rows}
        return {job.key: self._seen(job, by_id, by_tag) for job in jobs}

    def cancel(self, job: Job, *, force: bool) -> None:
        how = ["--signal=KILL", "--full"] if force else []
        if job.job_id:
            self._ask(["scancel", *how, job.job_id])

    def _seen(self, job: Job, by_id: Mapping[str, squeue.Row], by_tag: Mapping[str, squeue.Row]) -> JobSeen:
        row = by_id.get(job.job_id) or by_tag.get(attempt_tag(job.run.run_id, job.attempt))
        if row is not None and row.state.ended:  # squeue does not tell the exit code
            row = squeue.show_job(row.job_id, self._ask) or row
        if row is None and job.job_id:
            row = squeue.show_job(job.job_id, self._ask)
            if row is None:
                return JobSeen(state=JobState.UNKNOWN, reason="scontrol gave no answer", job_id=job.job_id)
        if row is None:
            return JobSeen(state=JobState.GONE, reason="no job with the attempt's tag")
        return JobSeen(state=row.state, reason=row.reason, job_id=row.job_id, exit=row.exit)
