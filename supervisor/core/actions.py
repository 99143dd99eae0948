"""What the supervisor can do. A closed union; the shell carries each out, intent journalled first."""

from dataclasses import dataclass

from contract.control import OrderKind
from contract.events import AlertQueued, Body
from contract.requests import Request
from contract.states import RunState


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Submit the attempt with this number: a new one, or again one whose submission failed or is in doubt."""

    attempt: int
    reason: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Order a new generation in the same attempt: control.json says prepare with these members.

    `evidence`: the order by which the agents first keep where the workers stand, "" when nothing is to be seen.
    """

    attempt: int
    generation: int
    members: tuple[str, ...]
    reason: str
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Go:
    """Every member is ready: control.json says go, with the port that members[0] listens on."""

    attempt: int
    generation: int
    members: tuple[str, ...]
    master: str
    port: int


@dataclass(frozen=True, kw_only=True)
class TakeEvidence:
    """Order the agents to keep where their workers stand, and let them run on."""

    attempt: int
    order: str
    kind: OrderKind
    reason: str


@dataclass(frozen=True, kw_only=True)
class SaveAndLeave:
    """Ask the workers to save and the agents to leave (pause)."""

    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """End the attempt's job; `force` after a polite try did not help."""

    attempt: int
    reason: str
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class CloseAttempt:
    """Record that the queue is sure the job is over."""

    attempt: int
    job_state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SetBounds:
    """From where generations may resume from now on, and which sampler positions they jump over."""

    min_step: int
    max_step: int
    skip_windows: tuple[tuple[int, int], ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class PassOn:
    """Bring control.json up to what was set while running, with this one-off order for rank 0 if there is one.

    `steps` and `ranks`: of a profile; 0 and (): as the configuration says.
    """

    attempt: int
    reason: str
    order: str = ""
    kind: str = ""
    steps: int = 0
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reconfigure:
    """Replace run.toml as the request asks, or answer it with what is wrong. No attempt may be alive."""

    request: Request


@dataclass(frozen=True, kw_only=True)
class SetState:
    """The run's state as people see it."""

    state: RunState
    reason: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Take a request and say what became of it. `events`: what it brings about, journalled before the answer."""

    request: Request
    outcome: str
    ok: bool
    events: tuple[Body, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Put an alert into the outbox."""

    alert: AlertQueued


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do before `until` (the time base of `now`), and why."""

    until: float
    reason: str


Action = (
    Submit
    | Prepare
    | Go
    | TakeEvidence
    | SaveAndLeave
    | Cancel
    | CloseAttempt
    | SetBounds
    | PassOn
    | Reconfigure
    | SetState
    | Answer
    | Tell
    | Wait
)
