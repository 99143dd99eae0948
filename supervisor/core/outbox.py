"""Which message leaves next, and what an answer of the robot means. Pure; the shell sends and journals.

What the shell promises for a `Deliver`: it journals `AlertTried(id)` and sends `text` once. When the robot accepts
it, it journals `AlertDelivered` for each of `also` first and for `id` last, so that a crash in between repeats
nothing unmarked. When it does not, it journals `AlertFailed(id, …, permanent=classify(…) is Fate.DROP)`. It does not ask for the next
message while one is on its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from contract.config.supervision import WeCom
from contract.history import AlertState, History
from supervisor.core.actions import Wait
from supervisor.core.text import cut, size

TEXT_BYTES = 2048
RATE_LIMITED = 45009
_BUSY = -1
_HOPELESS = frozenset(
    {93000, 40008, 40058, 44004}
)  # wrong key, wrong type, too long, empty: again is the same
_WINDOW_S = 60.0
_FIRST_RETRY_S = 2.0
_LAST_RETRY_S = 60.0
_STRANGE_TRIES = 5
_SINGLY = 4  # more than so many waiting messages of one rank of urgency are folded into one

MAYBE = {"zh": "（可能重复）", "en": "(may be a repeat) "}


class Fate(StrEnum):
    """What becomes of a message after an answer."""

    SENT = "sent"
    RETRY = "retry"
    DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Send this text. `also`: alerts that it carries besides `id`, folded. `mentions`: user ids, or `@all`."""

    id: str
    text: str
    maybe_duplicate: bool = False
    mentions: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def classify(errcode: int | None, status: int = 200, *, tries: int = 1) -> Fate:
    """What the robot's answer to try number `tries` means.

    `errcode` None: there was none; `status` is then the HTTP status, 0 for no HTTP at all (time-out, refused). The
    robot itself always answers with HTTP 200, so that any other status comes from something on the way: again later.
    """
    if errcode is None:
        return Fate.RETRY
    if errcode == 0:
        return Fate.SENT if status == 200 else Fate.RETRY
    if errcode in {_BUSY, RATE_LIMITED}:
        return Fate.RETRY
    if errcode in _HOPELESS:
        return Fate.DROP
    return Fate.RETRY if tries < _STRANGE_TRIES else Fate.DROP


def next_delivery(
    history: History, sent_at: Sequence[float], wecom: WeCom, now: float
) -> Deliver | Wait | None:
    """The next message, or when to ask again, or None: the outbox is empty.

    `sent_at`: when the newest messages left through this robot, of whatever run.
    """
    if not history.outbox:
        return None
    waiting = sorted(history.outbox.values(), key=_urgency)  # stable: the order of queueing stays
    head = waiting[0]
    ready_at = max(_free_at(sent_at, wecom, now), _retry_at(head, now), _pause_until(waiting, now))
    if ready_at > now:
        return Wait(until=ready_at, reason=f"alert {head.alert.id} waits for its turn")
    return _message(waiting, wecom)


def _urgency(state: AlertState) -> bool:
    """Critical ones first; a recovery never overtakes the failure that it answers."""
    return state.alert.severity != "critical"


def _free_at(sent_at: Sequence[float], wecom: WeCom, now: float) -> float:
    """When the rate budget allows one more. A time in the future (a clock set back) counts as just now."""
    recent = sorted(min(at, now) for at in sent_at if now - at < _WINDOW_S)
    if len(recent) < wecom.per_minute:
        return now
    return recent[-wecom.per_minute] + _WINDOW_S


def _retry_at(state: AlertState, now: float) -> float:
    """When this one may be tried again: 2, 4, 8 … 60 s after the last try."""
    if state.tries == 0 or state.tried_at is None:
        return now
    wait = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(state.tries - 1, 10))
    return min(state.tried_at, now) + wait if state.tried_at <= now else now


def _pause_until(waiting: Sequence[AlertState], now: float) -> float:
    """Being refused for the rate is the robot's state, not the message's: everything waits a whole minute."""
    refused = [
        state.tried_at
        for state in waiting
        if state.errcode == RATE_LIMITED and not state.unanswered and state.tried_at is not None
    ]
    return max((at + _WINDOW_S for at in refused if at <= now), default=now)


def _message(waiting: Sequence[AlertState], wecom: WeCom) -> Deliver:
    head = waiting[0]
    group = [state for state in waiting if _urgency(state) == _urgency(head)]
    folded = group[1:] if len(group) > _SINGLY else []
    # Only a try that the robot did not answer may have arrived. Folded ones are marked if any of them is one.
    maybe = any(_may_have_arrived(state) for state in (head, *folded))
    mentions = tuple(wecom.mention) if head.alert.severity == "critical" else ()
    return Deliver(
        id=head.alert.id,
        text=_text(head, folded, wecom.language, maybe=maybe),
        maybe_duplicate=maybe,
        mentions=mentions,
        also=tuple(state.alert.id for state in folded),
    )


def _may_have_arrived(state: AlertState) -> bool:
    """Whether an earlier try ended without the robot's word. `errcode` of such a failure is 0 or an HTTP status."""
    return state.tries > 0 and (state.unanswered or state.errcode == 0 or 200 <= state.errcode < 600)


def _text(head: AlertState, folded: Sequence[AlertState], language: str, *, maybe: bool) -> str:
    mark = MAYBE[language] if maybe else ""
    text = mark + _said(head, language)
    if not folded:
        return cut(text, TEXT_BYTES)
    note = f"\n\n另有 {len(folded)} 条：" if language == "zh" else f"\n\n{len(folded)} more:"
    lines = [f"\n- {state.alert.title.get(language) or state.alert.key}" for state in folded]
    text = cut(text, TEXT_BYTES // 2)
    room = TEXT_BYTES - size(text) - size(note)
    return text + note + cut("".join(lines), room)


def _said(state: AlertState, language: str) -> str:
    texts = state.alert.text
    return texts.get(language) or next(iter(texts.values()), "") or state.alert.key
