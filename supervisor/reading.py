"""What `status` and `explain` know: the same look and the same verdict as the daemon's, without a lock or a write."""

from dataclasses import dataclass, replace

from contract.config import RunConfig, read_resolved
from contract.events import AlertDelivered, AlertFailed, Event
from contract.fold import fold
from contract.history import History
from contract.journal import JournalReader
from contract.layout import RunDir
from contract.states import JobState, RunState, VerdictKind
from slurm.patience import Patience
from slurm.queue import Job, LocalQueue, SlurmQueue
from supervisor.adapters.queues import job_id_of, look_of, recorded_end
from supervisor.adapters.rundir import Observer
from supervisor.book import journal_trouble
from supervisor.core.judge import judge
from supervisor.core.look import silent_limit_s
from supervisor.core.observation import JobLook, Observation
from supervisor.core.verdict import Verdict
from supervisor.mail import NOT_CONFIGURED

LOOK_S = 5.0  # whoever looks waits no longer for Slurm; the files say enough


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One run as it is now."""

    run: RunDir
    config: RunConfig
    events: tuple[Event, ...]
    history: History
    observation: Observation
    verdict: Verdict

    @property
    def alert_problem(self) -> str:
        """Why alerts are not delivered, "" when the newest outcome was a delivery (or there was none)."""
        for event in reversed(self.events):
            if isinstance(event.body, AlertDelivered):
                return ""
            if isinstance(event.body, AlertFailed):
                return NOT_CONFIGURED if NOT_CONFIGURED in event.body.reason else event.body.reason
        return ""


def read(
    run: RunDir,
    now: float,
    monotonic: float,
    *,
    slurm: Patience | None,
    observer: Observer | None = None,
) -> Reading:
    """Look once. Without `slurm` only at files: of a job that is not recorded as ended the state is unknown.

    With one `slurm` for many runs the queue is asked once for all.
    An `observer` that has looked before knows for how long a beat has stood still.

    Raises:
        ConfigError: run.toml cannot be read.
    """
    config = read_resolved(run.config)
    reader = JournalReader(run.journal)
    events = tuple(reader.new())
    history = replace(fold(events), damaged=tuple(reader.problems))
    lost = journal_trouble(run, history)
    if lost:
        history = replace(history, run=run.run_id, state=RunState.UNKNOWN, reason=lost, lost=lost)
    observation = (observer or Observer(run)).look(
        config, lambda attempt: _job(run, config, history, attempt, slurm), monotonic
    )
    observation = aged_by_files(run, observation, config, now)
    verdict = (
        Verdict(kind=VerdictKind.UNKNOWN, reason=lost) if lost else judge(observation, history, config, now)
    )
    unseen = bool(observation.nodes) and not any(seen.moved for seen in observation.nodes)
    if verdict.kind is VerdictKind.UNKNOWN and unseen and not lost:
        verdict = replace(verdict, reason=f"{verdict.reason}; by the time of the beats' files")
    doubtful = {VerdictKind.HEALTHY, VerdictKind.STARTING, VerdictKind.UNKNOWN}
    if verdict.kind in doubtful and not lost and all_left(observation):
        # A daemon sees their beats stand still; one look cannot.
        verdict = Verdict(
            kind=VerdictKind.UNKNOWN,
            reason="all agents have left or are about to, and no supervisor has said why yet",
        )
    return Reading(
        run=run, config=config, events=events, history=history, observation=observation, verdict=verdict
    )


def aged_by_files(run: RunDir, observation: Observation, config: RunConfig, now: float) -> Observation:
    """Beats that were not seen to move are as old as their files say.

    For people only: one look cannot see a beat move, and an old beat is no sign of life. The time of a file may be
    another host's, so that no action may rest on it (rule 7); of one that lies far ahead the age is as doubtful.
    """
    if all(seen.moved or seen.alive for seen in observation.nodes):
        return observation
    place, limit = run.attempt(observation.attempt), silent_limit_s(config, observation.lag_s)
    found = []
    for seen in observation.nodes:
        if seen.moved or seen.alive or seen.beat is None:
            found.append(seen)
            continue
        try:
            age = abs(now - place.beat(seen.node).stat().st_mtime)
        except OSError:
            found.append(seen)
            continue
        fresh = age <= limit
        silent_s = seen.silent_s if fresh else max(age, seen.silent_s)
        found.append(replace(seen, silent_s=silent_s, moved=fresh))
    return replace(observation, nodes=tuple(found))


def all_left(observation: Observation) -> bool:
    """Whether every agent of the attempt is dead or has said that it is done."""
    ours = [
        (seen, seen.beat)
        for seen in observation.nodes
        if seen.beat and seen.beat.attempt == observation.attempt
    ]
    return bool(ours) and all(seen.alive is False or beat.done_code is not None for seen, beat in ours)


def _job(run: RunDir, config: RunConfig, history: History, attempt: int, slurm: Patience | None) -> JobLook:
    over = recorded_end(history, attempt)
    if over is not None:
        return over
    if slurm is None:
        return JobLook(state=JobState.UNKNOWN, job_id=job_id_of(history, attempt))
    job = Job(run=run, attempt=attempt, job_id=job_id_of(history, attempt))
    queue = SlurmQueue(slurm) if config.job.executor == "slurm" else LocalQueue()
    seen = queue.look([job])[job.key]
    return look_of(seen, 0.0)
