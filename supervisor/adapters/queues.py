"""The queue's word on each attempt: this machine asked at each look, Slurm asked in the background for all runs.

A silent Slurm controller takes ten seconds to say nothing; in a thread of its own it delays no tick. The age of the
newest answer goes with it.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from contract.config import RunConfig
from contract.history import History
from contract.layout import RunDir
from contract.states import JobState
from slurm.queue import Job, JobSeen, LocalQueue, QueueClient, SlurmQueue
from supervisor.core.observation import JobLook

_PATIENCE_S = 30.0  # a client may take so long before it gives up
_JITTER = 0.1  # many supervisors must not ask one controller in step
_SETTLE_S = 30.0  # a job that was just handed in may not show itself at once
_HURRIED_S = 2.0  # between two questions while a run waits for the answer
_BACK_OFF = 4  # a controller that does not answer is asked up to so many times less often


@dataclass(frozen=True, kw_only=True)
class _Known:
    seen: JobSeen
    at: float


class Queues:
    """Both queues. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float], slurm: QueueClient | None = None) -> None:
        self._clock = clock
        self._local: QueueClient = LocalQueue()
        self._slurm: QueueClient = slurm or SlurmQueue()
        self._wanted: dict[tuple[str, int], Job] = {}
        # By job, not by attempt: what was said of an attempt before it was handed in is no word on its job.
        self._known: dict[Job, _Known] = {}
        self._asked_about: frozenset[Job] = frozenset()
        self._wanted_at: dict[Job, float] = {}
        self._asked_at: float | None = None
        self._asking: threading.Thread | None = None
        self._unanswered = 0
        self._excuses: dict[Job, str] = {}  # why the newest answer is none
        self._jitter = 1.0
        self._hurried = False

    def client(self, config: RunConfig) -> QueueClient:
        return self._slurm if config.job.executor == "slurm" else self._local

    def look(self, run: RunDir, config: RunConfig, attempt: int, job_id: str) -> JobLook:
        """The queue's newest word on this attempt."""
        if attempt == 0:
            return JobLook(state=JobState.GONE, reason="no attempt yet")
        job = Job(run=run, attempt=attempt, job_id=job_id)
        if config.job.executor == "local":
            return look_of(self._local.look([job])[job.key], 0.0)
        return self._look_slurm(job, config.supervisor.queue_s)

    def forget(self, run: RunDir) -> None:
        """This run needs no more answers."""
        self._wanted = {key: job for key, job in self._wanted.items() if key[0] != run.run_id}

    def hurry(self) -> None:
        """A run waits for Slurm's word: the next question is asked soon, unless Slurm answers nobody."""
        self._hurried = True

    def _look_slurm(self, job: Job, queue_s: float) -> JobLook:
        now = self._clock()
        if self._wanted.get(job.key) != job:
            self.forget(job.run)  # earlier attempts are over
            self._wanted[job.key] = job
            self._wanted_at = {job: self._wanted_at.get(job, now) for job in self._wanted.values()}
        free = self._asking is None or not self._asking.is_alive()
        if free and (job not in self._asked_about or self._due(now, queue_s)):
            self._asked_at, self._hurried = now, False
            self._jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
            jobs = list(self._wanted.values())
            self._asked_about = frozenset(jobs)
            self._asking = threading.Thread(target=self._ask, args=(jobs,), name="queue", daemon=True)
            self._asking.start()
        known, excuse = self._known.get(job), self._excuses.get(job, "")
        if known is None:
            reason = excuse or "Slurm has not answered yet"
            # A supervisor that was started while the controller is silent has only its own wait to tell.
            waited = now - self._wanted_at[job]
            return JobLook(state=JobState.UNKNOWN, reason=reason, job_id=job.job_id, age_s=waited)
        age = now - known.at
        if age > _BACK_OFF * queue_s + _PATIENCE_S:
            reason = f"Slurm has not answered for {age:.0f} s; it last said {known.seen.state}"
            reason += f" ({excuse})" if excuse else ""
            return JobLook(state=JobState.UNKNOWN, reason=reason, job_id=known.seen.job_id, age_s=age)
        if known.seen.state is JobState.GONE and job.job_id and now - self._wanted_at[job] < _SETTLE_S:
            return JobLook(state=JobState.UNKNOWN, reason=f"{known.seen.reason} (yet)", job_id=job.job_id)
        return look_of(known.seen, age)

    def _due(self, now: float, queue_s: float) -> bool:
        if self._asked_at is None:
            return True
        if self._hurried and not self._unanswered:
            queue_s = min(queue_s, _HURRIED_S)
        slower = min(_BACK_OFF, 2.0 ** min(self._unanswered, _BACK_OFF))
        return now - self._asked_at >= queue_s * slower * self._jitter

    def _ask(self, jobs: list[Job]) -> None:
        """One question for all runs. Where the answer is "unknown" the last reliable one stays, and grows old."""
        at = self._clock()  # before: a slow answer is as old as its question
        answers = self._slurm.look(jobs)
        found = {job: seen for job in jobs if (seen := answers[job.key]).state is not JobState.UNKNOWN}
        self._excuses = {job: answers[job.key].reason for job in jobs if job not in found}
        self._unanswered = 0 if found or not jobs else self._unanswered + 1
        kept = {job: known for job, known in self._known.items() if job in self._wanted.values()}
        self._known = kept | {job: _Known(seen=seen, at=at) for job, seen in found.items()}


def look_of(seen: JobSeen, age_s: float) -> JobLook:
    return JobLook(
        state=seen.state,
        reason=seen.reason,
        job_id=seen.job_id,
        age_s=age_s,
        nodes=seen.nodes,
        dead=seen.dead,
        failed=seen.failed,
    )


def recorded_end(history: History, attempt: int) -> JobLook | None:
    """The queue's last word on an attempt that the journal records as ended: nobody need be asked again."""
    for item in history.attempts:
        if item.number == attempt and item.ended is not None:
            words = {state.value: state for state in JobState}
            state = words.get(item.ended.job_state, JobState.GONE)
            return JobLook(state=state, reason=item.ended.reason, job_id=item.job_id)
    return None


def job_id_of(history: History, attempt: int) -> str:
    return next((item.job_id for item in history.attempts if item.number == attempt), "")
