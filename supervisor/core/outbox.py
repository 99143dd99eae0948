"""Which message leaves next through one robot, for all runs of a supervisor. Pure; the shell sends and journals.

What the shell promises for a `Deliver`: it journals `AlertTried` for every run whose alerts the message carries, and
sends `text` once. When the robot accepts it, it journals `AlertDelivered` likewise; when not, `AlertFailed` with
`permanent=classify(…) is Fate.DROP`. It does not ask for the next message of a robot while one is on its way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contract.config.alerts import Receiver
from contract.events import AlertQueued
from contract.history import History
from contract.outbox import DIGEST, AlertState
from contract.states import RunState
from supervisor.core.actions import Wait
from supervisor.core.hours import quiet_until
from supervisor.core.message import Entry, Topic, compose
from supervisor.core.services import SERVICES, Service
from supervisor.core.text import cut

SEVERITIES = ("info", "warning", "critical")
_WINDOW_S = 60.0
_HOUR_S = 3600.0
_FIRST_RETRY_S = 2.0
_LAST_RETRY_S = 60.0
_CRITICAL, _ASKS, _NEWS, _DIGEST = range(4)
_SINGLY = 4  # more than so many waiting messages of one rank of urgency are folded into one
_FEW_RUNS = 2
# Runs that fail together fail within seconds of each other: the first waits a little for the others.
_GATHER_S = 3.0
_GATHER_MOST_S = 15.0
# (messages within the last hour, least time between two): a storm of news becomes a handful. What somebody must act
# on (critical, or `asks`) never waits for this, and stays within the robot's minute all the same.
_SPACING = ((12, 600.0), (8, 60.0))

SPACED = "more than {count} this hour"
HELD = "quiet hours, or the run is silenced"
MAYBE = {"zh": "（可能重复）", "en": "(may be a repeat) "}


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One run with what it has for this robot. `state`: the run's, as it is now."""

    run: str
    state: RunState
    alerts: tuple[AlertState, ...]
    silenced_until: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Send this text. `parts`: what it carries, ids of alerts by run and receiver, as the run's outbox names it.

    `mentions`: user ids, or `@all`.
    """

    text: str
    parts: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    severity: str = "info"
    title: str = ""
    maybe_duplicate: bool = False
    mentions: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(len(ids) for ids in self.parts.values())


def addressed(alert: AlertQueued, receivers: Iterable[Receiver]) -> tuple[str, ...]:
    """Names of those whose least severity this alert reaches. The end of something counts as what it ends."""
    if alert.key.startswith(DIGEST):
        return alert.receivers
    rank = max(_rank(alert.severity), _rank(alert.answers))
    return tuple(receiver.name for receiver in receivers if rank >= _rank(receiver.min_severity))


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def waiting(run: str, history: History, names: frozenset[str]) -> Waiting | None:
    """What this run has for the robot that it knows under these names; None: nothing."""
    mine = tuple(state for state in history.outbox.values() if state.receiver in names)
    if not mine:
        return None
    return Waiting(run=run, state=history.state, alerts=mine, silenced_until=history.silenced_until)


def next_delivery(
    boxes: Sequence[Waiting],
    sent_at: Sequence[float],
    receiver: Receiver,
    now: float,
    *,
    alone: bool = True,
) -> Deliver | Wait | None:
    """The next message, or when to ask again, or None: nothing is waiting.

    `sent_at`: when the newest messages left through this robot, of whatever run. `alone`: the supervisor has one run
    only, so that nothing need be gathered.
    """
    service = SERVICES[receiver.service]
    pending = [Entry(run=box.run, run_state=box.state, state=state) for box in boxes for state in box.alerts]
    if not pending:
        return None
    pending.sort(key=lambda entry: entry.state.queued_at)
    over = _over(pending)
    silent = {box.run: box.silenced_until for box in boxes}
    quiet = quiet_until(receiver, now)
    held = [
        (max(silent[entry.run], 0.0 if _rank_of(entry, over) == _CRITICAL else quiet), entry)
        for entry in pending
    ]
    free = [entry for until, entry in held if until <= now]
    if not free:
        return Wait(until=min(until for until, _ in held), reason=HELD)
    group = _group(free, over)
    head = group[0]
    spaced_at, why = _spaced_at(group, sent_at, now) if _rank_of(head, over) > _ASKS else (now, "")
    ready_at = max(
        _free_at(sent_at, receiver, service, now),
        _retry_at(head.state, now),
        _pause_until(pending, service, now),
        now if alone else _gathered_at(group, now),
        spaced_at,
    )
    if ready_at > now:
        turn = f"alert {head.state.alert.id} waits for its turn"
        return Wait(until=ready_at, reason=why if spaced_at == ready_at else turn)
    return _message(group, _topic(head, free, over), receiver, service)


def _over(pending: Sequence[Entry]) -> frozenset[Topic]:
    """What has come to its end while it waited: it needs nobody any more, and leaves with its end."""
    newest = {entry.topic: entry for entry in pending}
    return frozenset(topic for topic, entry in newest.items() if entry.state.alert.ends)


def _rank_of(entry: Entry, over: frozenset[Topic]) -> int:
    """Critical ones first, then what else somebody must act on, then the rest, digests last and by themselves."""
    if entry.urgent and entry.topic not in over:
        return _CRITICAL if entry.critical else _ASKS
    return _DIGEST if entry.digest else _NEWS


def _group(free: Sequence[Entry], over: frozenset[Topic]) -> list[Entry]:
    """What leaves together: of one rank."""
    first = min(_rank_of(entry, over) for entry in free)
    # A recovery never overtakes the failure that it answers: within a rank the order of queueing stays.
    return [entry for entry in free if _rank_of(entry, over) == first]


def _topic(head: Entry, free: Sequence[Entry], over: frozenset[Topic]) -> list[Entry]:
    """This one; and what came of it, when it is over: whoever reads of it reads how it is now."""
    return [entry for entry in free if entry.topic == head.topic] if head.topic in over else [head]


def _free_at(sent_at: Sequence[float], receiver: Receiver, service: Service, now: float) -> float:
    """When the rate budget allows one more. A time in the future (a clock set back) counts as just now."""
    recent = sorted(min(at, now) for at in sent_at if now - at < _WINDOW_S)
    last = recent[-1] + service.gap_s if recent else now
    if len(recent) < receiver.per_minute:
        return max(now, last)
    return max(last, recent[-receiver.per_minute] + _WINDOW_S)


def _retry_at(state: AlertState, now: float) -> float:
    """When this one may be tried again: 2, 4, 8 … 60 s after the last try."""
    if state.tries == 0 or state.tried_at is None:
        return now
    wait = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(state.tries - 1, 10))
    return min(state.tried_at, now) + wait if state.tried_at <= now else now


def _pause_until(pending: Sequence[Entry], service: Service, now: float) -> float:
    """Being refused for the rate is the robot's state, not the message's: everything waits."""
    refused = [
        entry.state.tried_at
        for entry in pending
        if entry.state.errcode in service.limited
        and not entry.state.unanswered
        and entry.state.tried_at is not None
    ]
    return max((at + service.pause_s for at in refused if at <= now), default=now)


def _gathered_at(group: Sequence[Entry], now: float) -> float:
    """When nothing of another run has joined for a while, or the first has waited long enough."""
    if any(entry.state.tries for entry in group):
        return now
    first, last = group[0].state.queued_at, group[-1].state.queued_at
    until = min(last + _GATHER_S, first + _GATHER_MOST_S)
    return until if last <= now else now


def _spaced_at(group: Sequence[Entry], sent_at: Sequence[float], now: float) -> tuple[float, str]:
    """The more has been said within the hour, the longer the rest gathers, and why. A run's last words wait less."""
    recent = [min(at, now) for at in sent_at if now - at < _HOUR_S]
    for count, gap in _SPACING:
        if len(recent) >= count:
            final = any(entry.run_state.final for entry in group)
            return max(recent) + (min(gap, _WINDOW_S) if final else gap), SPACED.format(count=count)
    return now, ""


def _message(group: Sequence[Entry], topic: list[Entry], receiver: Receiver, service: Service) -> Deliver:
    """One alert as it is (or with its end), or many folded into one message."""
    runs = {entry.run for entry in group}
    fold = len(group) > _SINGLY or len(runs) > _FEW_RUNS or group[0].digest
    carried = list(group) if fold else topic
    # Only a try that the robot did not answer may have arrived. Folded ones are marked if any of them is one.
    maybe = any(_may_have_arrived(entry.state) for entry in carried)
    mark = MAYBE[receiver.language] if maybe else ""
    text = compose(carried, receiver.language, service.text_bytes - len((mark + receiver.keyword).encode()))
    if receiver.keyword and receiver.keyword not in text:
        text = receiver.keyword + text
    parts: dict[tuple[str, str], tuple[str, ...]] = {}
    for entry in carried:
        place = (entry.run, entry.state.receiver)
        parts[place] = (*parts.get(place, ()), entry.state.alert.id)
    newest = carried[-1]
    return Deliver(
        text=cut(mark + text, service.text_bytes),
        parts=parts,
        severity=max((entry.state.alert.severity for entry in carried), key=_rank),
        title=newest.state.alert.title.get(receiver.language, newest.state.alert.key),
        maybe_duplicate=maybe,
        mentions=tuple(receiver.mention) if newest.critical else (),
    )


def _may_have_arrived(state: AlertState) -> bool:
    """Whether an earlier try ended without the robot's word. `errcode` of such a failure is 0 or an HTTP status."""
    return state.tries > 0 and (state.unanswered or state.errcode == 0 or 200 <= state.errcode < 600)
