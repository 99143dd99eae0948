"""Delivers the outboxes of all runs of one supervisor: what leaves when is the core's, the way out is the courier's.

Runs that fail together are told of in one message, so that a robot's minute and its readers are shared fairly.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contract import events as ev
from contract.config.alerts import Receiver
from contract.history import History
from supervisor.adapters.courier import Courier, Parcel, Receipt
from supervisor.adapters.leadership import OvertakenError
from supervisor.adapters.post import Letter
from supervisor.adapters.robots import Robot, robot_for, scrub_keys
from supervisor.book import Book
from supervisor.core.actions import Wait
from supervisor.core.outbox import HELD, Deliver, Waiting, next_delivery, waiting
from supervisor.core.services import Fate, classify

NOT_CONFIGURED = "alerts are not configured"
_KEPT_S = 3600.0


@dataclass(kw_only=True)
class _Window:
    """One robot, whoever uses it. `sent_at`: times of the newest messages, over all runs."""

    receiver: Receiver
    courier: Courier = field(default_factory=Courier)
    sent_at: set[float] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class _Desk:
    """One run in care."""

    book: Book
    receivers: tuple[Receiver, ...]


class Mail:
    """`environment` holds the keys; they are read at each use and kept nowhere."""

    def __init__(self, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._environment = environment
        self._say = say
        self._said: set[str] = set()
        self._windows: dict[tuple[str, str], _Window] = {}
        self._desks: dict[str, _Desk] = {}
        self._receivers: dict[str, Receiver] = {}

    def join(self, book: Book, receivers: Sequence[Receiver]) -> None:
        """From now on this run's outbox is delivered. Tries of earlier supervisors count in the robots' minutes too."""
        known = self._desks.get(book.run.run_id)
        if known is not None and known.book is book:
            return
        self._desks[book.run.run_id] = _Desk(book=book, receivers=tuple(receivers))
        for number, receiver in enumerate(receivers):
            self._receivers[receiver.name] = receiver
            window = self._window(receiver)
            names = {receiver.name, ""} if number == 0 else {receiver.name}
            window.sent_at |= {at for name, at in book.history.sent_at if name in names}

    def leave(self, run_id: str) -> None:
        """The run's journal is closed: what is still on its way counts as unanswered."""
        self._desks.pop(run_id, None)

    @property
    def busy(self) -> bool:
        """Whether a message is on its way."""
        return any(window.courier.busy for window in self._windows.values())

    def wait(self, timeout_s: float) -> None:
        """Let what is on its way arrive (before the end of the process), and record it."""
        deadline = time.monotonic() + timeout_s
        for window in self._windows.values():
            window.courier.wait(max(0.0, deadline - time.monotonic()))
        self.collect()

    def held(self, book: Book, receivers: Sequence[Receiver], now: float) -> bool:
        """Whether all that this run has to tell is held back by quiet hours or a silence (or it has nothing)."""
        for receiver in receivers:
            mine = waiting(book.run.run_id, book.history, names_of(receivers, receiver))
            if mine is None:
                continue
            coming = next_delivery([mine], (), receiver, now)
            if not isinstance(coming, Wait) or coming.reason != HELD:
                return False
        return True

    def scrub(self, text: str) -> str:
        """The text without any key that we know of."""
        return scrub_keys(text, self._receivers, self._environment)

    def collect(self) -> None:
        """Record the outcome of every message that has arrived or failed."""
        for window in self._windows.values():
            receipt = window.courier.collect()
            if receipt is not None:
                self._record(window.receiver, receipt)

    def deliver(self, book: Book, receivers: Sequence[Receiver], now: float) -> None:
        """Record what came back; send the next message of each robot of this run, if one is due and none on its way."""
        self.join(book, receivers)
        self.collect()
        if not book.history.outbox:
            return
        self._give_up(book, self._desks[book.run.run_id])
        for receiver in receivers:
            robot = robot_for(receiver, self._environment)
            window = self._window(receiver)
            if robot.problem or window.courier.busy:
                continue
            window.sent_at = {at for at in window.sent_at if now - at < _KEPT_S}
            alone = len(self._desks) < 2
            coming = next_delivery(self._boxes(receiver), sorted(window.sent_at), receiver, now, alone=alone)
            if isinstance(coming, Deliver):
                self._carry(window, coming, robot, now)

    def _boxes(self, receiver: Receiver) -> list[Waiting]:
        """What all runs have for this robot."""
        found = []
        for run_id, desk in self._desks.items():
            if desk.book.history.outbox and (names := names_of(desk.receivers, receiver)):
                found.append(waiting(run_id, desk.book.history, names))
        return [box for box in found if box is not None]

    def _carry(self, window: _Window, coming: Deliver, robot: Robot, now: float) -> None:
        """First the intent in each journal, then the effect. A run whose journal does not take it waits."""
        parts = {
            (run_id, receiver): ids
            for (run_id, receiver), ids in coming.parts.items()
            if self._write(run_id, ev.AlertTried(id=ids[0], also=ids[1:], receiver=receiver, at=now))
        }
        if not parts:
            return
        window.sent_at.add(now)
        letter = Letter(
            text=coming.text,
            mentions=coming.mentions,
            title=coming.title,
            severity=coming.severity,
            runs=tuple(dict.fromkeys(run for run, _ in coming.parts)),
            maybe_duplicate=coming.maybe_duplicate,
        )
        window.courier.take(Parcel(parts=parts, send=lambda: robot.send(letter)))

    def _record(self, receiver: Receiver, receipt: Receipt) -> None:
        answer = receipt.answer
        for (run_id, name), ids in receipt.parts.items():
            fate = classify(
                answer.errcode, answer.status, tries=self._tries(run_id, ids), service=receiver.service
            )
            if fate is Fate.SENT:
                self._write(run_id, ev.AlertDelivered(id=ids[0], also=ids[1:], receiver=name))
                self._said.discard(receiver.name)
                continue
            failed = ev.AlertFailed(
                id=ids[0],
                also=ids[1:],
                receiver=name,
                errcode=answer.status if answer.errcode is None else answer.errcode,
                reason=answer.reason,
                permanent=fate is Fate.DROP,
            )
            self._write(run_id, failed)
            self._say_once(
                receiver.name, f"{run_id}: an alert was not delivered to {receiver.name}: {answer.reason}"
            )

    def _tries(self, run_id: str, ids: tuple[str, ...]) -> int:
        desk = self._desks.get(run_id)
        outbox = desk.book.history.outbox.values() if desk else ()
        return max((state.tries for state in outbox if state.alert.id in ids), default=1)

    def _write(self, run_id: str, body: ev.Body) -> bool:
        """Into the run's journal. One that cannot be written is its own tick's trouble, not the other runs'."""
        desk = self._desks.get(run_id)
        if desk is None:
            return False
        try:
            desk.book.append(body)
        except OvertakenError:
            raise
        except Exception as error:  # whatever it is: the message concerns others too
            self._say(f"{run_id}: its outbox could not be written: {type(error).__name__}: {error}")
            self.leave(run_id)
            return False
        return True

    def _give_up(self, book: Book, desk: _Desk) -> None:
        """What can never leave (no key, no such robot any more) is recorded as such: nothing piles up."""
        problems = {item.name: robot_for(item, self._environment).problem for item in desk.receivers}
        for state in list(book.history.outbox.values()):
            name = state.receiver or (desk.receivers[0].name if desk.receivers else "")
            problem = problems.get(name, "no receiver in [alerts]" if not name else f"no receiver {name}")
            if problem:
                reason = (
                    f"{NOT_CONFIGURED} ({problem})"
                    if problem.startswith("set ")
                    else f"{NOT_CONFIGURED}: {problem}"
                )
                self._say_once(name, reason)
                book.append(
                    ev.AlertFailed(
                        id=state.alert.id, receiver=state.receiver, errcode=0, reason=reason, permanent=True
                    )
                )

    def _window(self, receiver: Receiver) -> _Window:
        return self._windows.setdefault(_robot_key(receiver), _Window(receiver=receiver))

    def _say_once(self, key: str, text: str) -> None:
        """Until a delivery works again."""
        if key not in self._said:
            self._said.add(key)
            self._say(text)


def names_of(receivers: Sequence[Receiver], robot: Receiver) -> frozenset[str]:
    """Under which names a run's outbox holds what is for this robot; "" (older versions) is the first one."""
    found = [number for number, item in enumerate(receivers) if _robot_key(item) == _robot_key(robot)]
    return frozenset({receivers[number].name for number in found} | ({""} if 0 in found else set()))


def held_back(history: History, receivers: Sequence[Receiver], now: float) -> Wait | None:
    """Until when something that this run has to tell is held back, and why; None: nothing is for more than a while.

    From this run's journal alone: what other runs have told through the same robot is not in it.
    """
    for receiver in receivers:
        names = names_of(receivers, receiver)
        mine = waiting(history.run, history, names)
        sent = sorted(at for name, at in history.sent_at if name in names)
        coming = next_delivery([mine], sent, receiver, now) if mine else None
        if isinstance(coming, Wait) and coming.reason:
            return coming
    return None


def _robot_key(receiver: Receiver) -> tuple[str, str]:
    return (receiver.base_url, receiver.name)
