"""The journal's events. The run's state is the fold of them (contract/fold.py); event_lines.py writes them down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Body:
    """What happened. Subclasses are the closed list of kinds."""


@dataclass(frozen=True, kw_only=True)
class RunCreated(Body):
    run: str
    config_digest: str
    version: str
    target_steps: int  # 0: the target is in tokens
    target_tokens: int


@dataclass(frozen=True, kw_only=True)
class SupervisorStarted(Body):
    host: str
    pid: int
    version: str


@dataclass(frozen=True, kw_only=True)
class QueueSilent(Body):
    """The supervisor has had no answer from the queue for `silent_s` by now; `reason` is the client's own word."""

    reason: str
    silent_s: float


@dataclass(frozen=True, kw_only=True)
class QueueAnswered(Body):
    """The queue that was silent answers."""


@dataclass(frozen=True, kw_only=True)
class AttemptIntended(Body):
    """Written before `sbatch` (rule 5). A retried submission keeps its number."""

    attempt: int
    tag: str
    reason: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AttemptSubmitted(Body):
    attempt: int
    job_id: str
    adopted: bool = False


@dataclass(frozen=True, kw_only=True)
class SubmitFailed(Body):
    """`permanent`: trying again cannot help. Otherwise the same attempt is submitted again after a wait."""

    attempt: int
    reason: str
    permanent: bool


@dataclass(frozen=True, kw_only=True)
class CancelIntended(Body):
    """The supervisor wants this attempt's job gone."""

    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class AttemptEnded(Body):
    """The queue is sure that the job is over; `job_state` is its word, `code` the agents' common exit code."""

    attempt: int
    job_state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class GenerationIntended(Body):
    """A restart in place was ordered: control.json says prepare (written before it does)."""

    attempt: int
    generation: int
    members: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class GenerationWent(Body):
    """Members, master and port are fixed: go."""

    attempt: int
    generation: int
    members: tuple[str, ...]
    master: str
    port: int


@dataclass(frozen=True, kw_only=True)
class GenerationResumed(Body):
    """Rank 0 recorded where it resumed: from this step on the generation writes the history."""

    attempt: int
    generation: int
    step: int
    restored_from: str = ""  # the place whose copy was brought back for it


@dataclass(frozen=True, kw_only=True)
class Judged(Body):
    """A verdict that is not healthy, with what it rests on, so that it can be judged again (rule 2).

    `detected_s`: seconds between the event on the node and the verdict, where the agent's clock tells.
    `signature` identifies the failure for "the same again" (cause, exception, place); `step` is where. `entry` is the
    failure's name in the catalogue, "" where no words or exit code tell.
    """

    attempt: int
    generation: int
    verdict: str
    cause: str
    reason: str
    step: int
    signature: str
    suspects: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    detected_s: float = 0.0
    lines: tuple[str, ...] = ()
    observation: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    entry: str = ""


@dataclass(frozen=True, kw_only=True)
class EvidenceKept(Body):
    """Where a generation's workers stood lies in the directory `path`. `order`: whose wish it was, "" for a verdict.

    `nodes` have kept theirs, `missing` have not (yet). `digest`: language → two lines that say what it means.
    `suspects`, `phase`: who kept the others waiting and in what, where it tells more than the pages did.
    """

    attempt: int
    generation: int
    path: str
    order: str = ""
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    digest: Mapping[str, str] = field(default_factory=dict)
    suspects: tuple[int, ...] = ()
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class Noticed(Judged):
    """A verdict that is told and not answered: slow, or numbers that look wrong. Open until its `NoticeOver`."""


@dataclass(frozen=True, kw_only=True)
class NoticeOver(Body):
    """What was noticed under this cause is over."""

    cause: str
    reason: str
    step: int


@dataclass(frozen=True, kw_only=True)
class Recovered(Body):
    """The first optimiser step after a failure is done. `lost_s`: from the verdict's event to that step."""

    attempt: int
    generation: int
    step: int
    failed_attempt: int
    failed_generation: int
    detect_s: float
    restart_s: float
    repeated_steps: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSeen(Body):
    step: int
    attempt: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class SaveFailed(Body):
    """A checkpoint could not be written, and training goes on. Over with the next `CheckpointSeen`."""

    attempt: int
    generation: int
    step: int  # where training was when that was seen
    cause: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodeLeftOut(Body):
    """An agent left before it trained, because its node is not fit: preflight, comparison with others, network."""

    attempt: int
    node: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class BatchChanged(Body):
    """At this step the generation took another batch plan; the reason is the trainer's."""

    attempt: int
    generation: int
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class StateChanged(Body):
    """The run's state as people see it; final ones stop the supervisor's work on it."""

    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class BoundsSet(Body):
    """From where generations may resume, and which sampler positions they jump over."""

    min_step: int
    max_step: int
    skip_windows: tuple[tuple[int, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SettingsChanged(Body):
    """run.toml was replaced between two attempts, as `request` asked: `changes` in words, the whole as a digest.

    `hot_dropped`: keys set while the run trained that hold no longer, because the request names them: the newest word
    counts.
    """

    request: str
    by: str
    changes: tuple[str, ...]
    config_digest: str
    target_steps: int
    target_tokens: int
    hot_dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RequestTaken(Body):
    """A command's request, consumed by the lock's holder."""

    id: str
    request: str
    by: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RequestDone(Body):
    id: str
    outcome: str
    ok: bool


@dataclass(frozen=True, kw_only=True)
class HotSet(Body):
    """Settings that hold from now on, over restarts and on top of run.toml (contract/hot.py)."""

    values: Mapping[str, Any]
    by: str


@dataclass(frozen=True, kw_only=True)
class ProfileAsked(Body):
    """The next steps of this generation are to be profiled. `steps` 0, `ranks` (): as the configuration says."""

    order: str
    attempt: int
    generation: int
    reason: str
    steps: int = 0
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProfileKept(Body):
    """A profile lies in the directory `path`, traces and summaries. `digest`: language → what it says, in lines.

    `missing`: ranks that have not written theirs. `order`: whose wish it was, "schedule" for the configuration's.
    """

    order: str
    attempt: int
    generation: int
    path: str
    first_step: int
    ranks: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    digest: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AlertQueued(Body):
    """Into the outbox. `key` folds duplicates until recovery; `text` maps language → message.

    `receivers`: names of those it is for; () is nobody, "" (also what older versions wrote) the first one.
    `answers`: severity of what this is the end of: whoever was told of that is told this too. `ends`: its key.
    `asks`: somebody must act, although nothing has failed.
    """

    id: str
    key: str
    severity: str
    title: Mapping[str, str]
    text: Mapping[str, str]
    answers: str = ""
    ends: str = ""
    asks: bool = False
    receivers: tuple[str, ...] = ("",)


@dataclass(frozen=True, kw_only=True)
class AlertTried(Body):
    """Written before the message leaves; without an outcome after it, a repeat may be a duplicate.

    `also`: alerts of this run that the message carries besides. `at`: when it left; the same in every journal whose
    alerts it carries, so that it counts once (0: as written).
    """

    id: str
    receiver: str = ""
    also: tuple[str, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AlertDelivered(Body):
    id: str
    receiver: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AlertFailed(Body):
    """`errcode` as the robot said it (-1 busy, 0 never here; HTTP status or 0 for a transport error)."""

    id: str
    errcode: int
    reason: str
    permanent: bool
    receiver: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AlertsAcknowledged(Body):
    """A person knows: these keys are not told again until the run has made progress past the incident."""

    by: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AlertsSilenced(Body):
    """A person wants to hear nothing of this run until then (UTC seconds); 0 ends it. What happens waits."""

    by: str
    until: float


@dataclass(frozen=True, kw_only=True)
class Event:
    """A body with its place in the journal. `time`: UTC seconds by the writer's clock, for people and back-off."""

    seq: int
    time: float
    epoch: int
    body: Body
