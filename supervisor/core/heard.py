"""What people say about the alerts: acknowledge the incident, silence the run. It changes what is told, never what is done."""

from collections.abc import Sequence
from datetime import UTC, datetime

from contract.events import AlertsAcknowledged, AlertsSilenced
from contract.history import History
from contract.requests import Request, RequestKind
from supervisor.core.actions import Answer

MOST_S = 7 * 86_400.0  # a silence that somebody forgets must end by itself


def heard(history: History, requests: Sequence[Request], now: float) -> tuple[Answer, ...]:
    """Answers to the requests of these kinds, whatever the run's state: also final, only observed, not watched."""
    return tuple(
        _acknowledge(history, request) if request.kind is RequestKind.ACK else _silence(request, now)
        for request in requests
        if request.kind.only_told
    )


def _acknowledge(history: History, request: Request) -> Answer:
    keys = tuple(sorted(history.incident_keys))
    if not keys:
        return Answer(request=request, outcome="there is no open incident to acknowledge", ok=False)
    who = request.by or "a person"
    what = ", ".join(key.removeprefix("failure:") for key in keys)
    return Answer(
        request=request,
        outcome=f"acknowledged by {who}: {what}; not told again until a checkpoint follows a recovery",
        ok=True,
        events=(AlertsAcknowledged(by=who, keys=keys),),
    )


def _silence(request: Request, now: float) -> Answer:
    until = request.args.get("until")
    if not isinstance(until, int | float) or until < 0:
        return Answer(request=request, outcome="this request does not say until when", ok=False)
    who = request.by or "a person"
    until = min(float(until), now + MOST_S)
    if until <= now:
        ended = AlertsSilenced(by=who, until=0.0)
        return Answer(request=request, outcome="the silence is over", ok=True, events=(ended,))
    shown = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return Answer(
        request=request,
        outcome=f"silenced by {who} until {shown}; what happens until then is told afterwards in one message",
        ok=True,
        events=(AlertsSilenced(by=who, until=until),),
    )
