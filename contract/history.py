"""What is known of a run: the records that the fold of its journal makes (contract/fold.py). Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract import events as ev
from contract.outbox import AlertState
from contract.states import RunState


@dataclass(frozen=True, kw_only=True)
class GenerationHistory:
    """One start of all workers. Times are the journal's; None: did not happen (yet)."""

    number: int
    members: tuple[str, ...] = ()
    reason: str = ""
    intended_at: float | None = None
    went_at: float | None = None
    resumed_at: float | None = None
    resume_step: int | None = None
    restored_from: str = ""
    failure: ev.Judged | None = None
    failed_at: float | None = None
    recovered: ev.Recovered | None = None
    evidence: ev.EvidenceKept | None = None

    @property
    def accused(self) -> tuple[tuple[int, ...], str]:
        """Suspects of the failure and their phase; the evidence's word where it names them, else the verdict's."""
        if self.failure is None:
            return (), ""
        phase = str(self.failure.limits.get("phase", ""))
        if self.evidence is None:
            return self.failure.suspects, phase
        return self.evidence.suspects or self.failure.suspects, self.evidence.phase or phase


@dataclass(frozen=True, kw_only=True)
class AttemptHistory:
    """One job. `submit_failures` counts tries that failed cleanly; the number of the attempt stays."""

    number: int
    tag: str
    reason: str
    intended_at: float
    exclude: tuple[str, ...] = ()
    job_id: str = ""
    submitted_at: float | None = None
    submit_failures: int = 0
    submit_failed_at: float | None = None
    submit_failure: str = ""
    submit_impossible: bool = False
    cancel: ev.CancelIntended | None = None
    cancelled_at: float | None = None
    ended: ev.AttemptEnded | None = None
    ended_at: float | None = None
    generations: tuple[GenerationHistory, ...] = ()

    @property
    def newest(self) -> GenerationHistory | None:
        return self.generations[-1] if self.generations else None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A verdict that led (or could lead) to a restart, kept until a checkpoint past its step exists."""

    at: float
    verdict: ev.Judged


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that was noticed and is told, not answered. `over` None: it lasts. Numbered for each run from 1."""

    number: int
    at: float
    seen: ev.Noticed
    over: ev.NoticeOver | None = None
    over_at: float | None = None

    @property
    def key(self) -> str:
        """Folds the alerts of this notice; it is told once, whatever else recovers meanwhile."""
        return f"notice:{self.seen.cause}:{self.number}"

    @property
    def over_key(self) -> str:
        """The same for the news that it is over."""
        return f"notice-over:{self.seen.cause}:{self.number}"


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that the journal says.

    `run` "": it does not tell of the run's creation. `lost`: why nothing may rest on it, "" when all is well.
    `damaged`: lines that were skipped, in words. Whoever reads the file sets these two; no event does.
    """

    run: str = ""
    lost: str = ""
    damaged: tuple[str, ...] = ()
    version: str = ""
    created_at: float = 0.0
    target_steps: int = 0
    target_tokens: int = 0
    epoch: int = 0
    state: RunState = RunState.PENDING
    reason: str = ""
    state_at: float = 0.0
    attempts: tuple[AttemptHistory, ...] = ()
    failures: tuple[Failure, ...] = ()
    open_failure: Failure | None = None  # the newest failure from which the run has not recovered yet
    notices: Mapping[str, Notice] = field(default_factory=dict)  # cause → the newest
    newest_checkpoint: ev.CheckpointSeen | None = None
    save_failure: ev.SaveFailed | None = None  # the newest, also when it is over
    queue_silent: tuple[float, str] | None = None  # since when the supervisor has had no answer, and why
    batch_change: ev.BatchChanged | None = None  # the newest
    saves_failing: bool = False  # no checkpoint has been seen since
    saves_failing_since: float = 0.0  # since when, or when the last such time began
    left_out: tuple[tuple[float, ev.NodeLeftOut], ...] = ()  # when, and which: the newest
    min_step: int = 0
    max_step: int = -1
    skip_windows: tuple[tuple[int, int], ...] = ()
    changed_for: str = ""  # the newest request whose settings are in run.toml
    requests: Mapping[str, ev.RequestTaken] = field(default_factory=dict)  # taken, not done
    hot: Mapping[str, Any] = field(default_factory=dict)  # set while running, on top of run.toml
    outbox: Mapping[str, AlertState] = field(default_factory=dict)  # not delivered yet; see box_key
    open_keys: frozenset[str] = frozenset()  # alerts said since the last recovery
    incident_keys: frozenset[str] = (
        frozenset()
    )  # failures said since the last recovery that led to a checkpoint
    acknowledged: ev.AlertsAcknowledged | None = None  # of this incident
    acknowledged_at: float = 0.0
    silenced_until: float = 0.0
    silenced_by: str = ""
    digests: Mapping[str, tuple[str, float]] = field(
        default_factory=dict
    )  # receiver → its newest day, and when
    sent_at: tuple[tuple[str, float], ...] = ()  # receiver and time of the newest tries, for the rate budget
    alerts_sent: int = 0
    alerts_failed: int = 0
    faults: tuple[ev.Recovered, ...] = ()
    dumps: Mapping[str, ev.EvidenceKept] = field(
        default_factory=dict
    )  # request → what was kept for it, the newest
    profiles_asked: Mapping[str, ev.ProfileAsked] = field(
        default_factory=dict
    )  # order → the wish, the newest
    profiles: tuple[ev.ProfileKept, ...] = ()  # the newest
    slow_profiles: int = 0  # made because the run was slow, over its whole life

    @property
    def newest(self) -> AttemptHistory | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def at(self) -> tuple[int, int]:
        """(attempt, generation) that the run is at; (0, 0) before the first attempt."""
        if self.newest is None:
            return (0, 0)
        generation = self.newest.newest
        return (self.newest.number, generation.number if generation else 1)
