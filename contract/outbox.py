"""Alerts on their way: the part of the journal's fold that delivery works on. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from contract import events as ev

# Keys of troubles that last over a restart of the workers, each with an all-clear of its own: no recovery ends them.
LASTING = ("unknown:", "saves:", "copy:", "queue:")
DIGEST = "digest:"  # how the key of a daily digest begins; the day follows
_KEPT = 200  # for each receiver


@dataclass(frozen=True, kw_only=True)
class AlertState:
    """One alert in the outbox, on its way to one receiver."""

    alert: ev.AlertQueued
    queued_at: float
    receiver: str = ""
    tries: int = 0
    unanswered: bool = False  # tried, and no outcome recorded: a repeat may be a duplicate
    tried_at: float | None = None
    errcode: int = 0
    failure: str = ""


Outbox = Mapping[str, AlertState]  # by `box_key`
Outcome = ev.AlertTried | ev.AlertDelivered | ev.AlertFailed


def box_key(receiver: str, alert: str) -> str:
    """Key of the outbox."""
    return f"{receiver}/{alert}" if receiver else alert


def queued(outbox: Outbox, body: ev.AlertQueued, at: float) -> tuple[Outbox, int]:
    """With this alert for each of its receivers; and how many others were given up for it.

    A robot that is down for days must not grow the journal's fold.
    """
    found = dict(outbox)
    for receiver in body.receivers:
        found[box_key(receiver, body.id)] = AlertState(alert=body, queued_at=at, receiver=receiver)
    overflow = _overflow(found, body.receivers)
    return _without(found, overflow), len(overflow)


def tried(outbox: Outbox, body: ev.AlertTried, at: float) -> Outbox:
    """A message is on its way, and nobody knows yet what became of it."""
    return _on(outbox, body, lambda item: replace(item, tries=item.tries + 1, tried_at=at, unanswered=True))


def failed(outbox: Outbox, body: ev.AlertFailed, at: float) -> Outbox:
    """It did not arrive, and is tried again."""
    return _on(
        outbox,
        body,
        lambda item: replace(item, tried_at=at, unanswered=False, errcode=body.errcode, failure=body.reason),
    )


def done(outbox: Outbox, body: Outcome) -> tuple[Outbox, int]:
    """Without what the event is about, arrived or given up; and how many that were."""
    keys = _boxes(outbox, body)
    return _without(outbox, keys), len(keys)


def _overflow(outbox: Outbox, receivers: tuple[str, ...]) -> list[str]:
    """What is given up: the oldest, and what needs a person last."""
    found = []
    for receiver in receivers:
        mine = [key for key, state in outbox.items() if state.receiver == receiver]
        if len(mine) > _KEPT:
            mine.sort(key=lambda key: outbox[key].alert.severity == "critical")  # stable: the oldest first
            found += mine[: len(mine) - _KEPT]
    return found


def _boxes(outbox: Outbox, body: Outcome) -> list[str]:
    """Keys of what the event is about, as far as it is in the outbox."""
    keys = (box_key(body.receiver, alert) for alert in (body.id, *body.also))
    return [key for key in dict.fromkeys(keys) if key in outbox]


def _on(outbox: Outbox, body: Outcome, change: Callable[[AlertState], AlertState]) -> Outbox:
    return {**outbox, **{key: change(outbox[key]) for key in _boxes(outbox, body)}}


def _without(outbox: Outbox, keys: list[str]) -> Outbox:
    return {name: state for name, state in outbox.items() if name not in keys}
