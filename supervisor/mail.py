"""Delivers the outboxes of all runs of one supervisor: what leaves when is the core's, the way out is the courier's."""

from collections.abc import Callable, Iterable, Mapping

from contract import events as ev
from contract.config.supervision import WeCom
from supervisor.adapters.courier import Courier, Parcel, Receipt
from supervisor.adapters.wecom import Robot
from supervisor.book import Book
from supervisor.core.outbox import Deliver, Fate, classify, next_delivery

NOT_CONFIGURED = "alerts are not configured"
_WINDOW_S = 60.0


class Mail:
    """`environment` holds the keys; they are read at each use and kept nowhere."""

    def __init__(self, courier: Courier, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._courier = courier
        self._environment = environment
        self._say = say
        self._said: set[str] = set()
        self._sent_at: dict[
            tuple[str, str], list[float]
        ] = {}  # robot → times of the newest tries, over all runs
        self._names: set[str] = set()

    def remember(self, wecom: WeCom, sent_at: Iterable[float]) -> None:
        """Tries of earlier supervisors count in the robot's minute too."""
        self._names.add(wecom.key_env)
        self._sent_at.setdefault(_robot_name(wecom), []).extend(sent_at)

    def scrub(self, text: str) -> str:
        """The text without any key that we know of."""
        for name in self._names:
            secret = self._environment.get(name, "")
            if secret:
                text = Robot(base_url="", secret=secret).scrub(text.replace(secret, "(key)"))
        return text

    def collect(self, book: Book, wecom: WeCom) -> None:
        """Record the outcome of this run's message in flight, if there is one."""
        receipt = self._courier.collect(book.run.run_id)
        if receipt is not None:
            self._record(book, wecom, receipt)

    def deliver(self, book: Book, wecom: WeCom, now: float) -> None:
        """Record what came back; send the next message if one is due and none is on its way."""
        self.collect(book, wecom)
        if not book.history.outbox:
            return
        robot = Robot(base_url=wecom.base_url, secret=self._environment.get(wecom.key_env, ""))
        if robot.problem:
            self._give_up(book, wecom, robot)
            return
        if self._courier.busy:
            return
        name = _robot_name(wecom)
        sent_at = [at for at in self._sent_at.get(name, []) if now - at < _WINDOW_S]
        coming = next_delivery(book.history, sent_at, wecom, now)
        if not isinstance(coming, Deliver):
            return
        book.append(ev.AlertTried(id=coming.id))
        self._sent_at[name] = [*sent_at, now]
        parcel = Parcel(
            owner=book.run.run_id,
            alert=coming.id,
            also=coming.also,
            send=lambda: robot.send(coming.text, coming.mentions),
        )
        self._courier.take(parcel)

    def _record(self, book: Book, wecom: WeCom, receipt: Receipt) -> None:
        state = book.history.outbox.get(receipt.alert)
        answer = receipt.answer
        fate = classify(answer.errcode, answer.status, tries=state.tries if state else 1)
        if fate is Fate.SENT:
            for alert in (
                *receipt.also,
                receipt.alert,
            ):  # this order: a crash in between repeats nothing unmarked
                book.append(ev.AlertDelivered(id=alert))
            self._said.discard(wecom.key_env)
            return
        code = answer.status if answer.errcode is None else answer.errcode
        book.append(
            ev.AlertFailed(id=receipt.alert, errcode=code, reason=answer.reason, permanent=fate is Fate.DROP)
        )
        self._say_once(wecom.key_env, f"{book.run.run_id}: an alert was not delivered: {answer.reason}")

    def _give_up(self, book: Book, wecom: WeCom, robot: Robot) -> None:
        """Without a key nothing will ever leave: say so, and let nothing pile up."""
        missing = not self._environment.get(wecom.key_env)
        reason = (
            f"{NOT_CONFIGURED} (set {wecom.key_env})" if missing else f"{NOT_CONFIGURED}: {robot.problem}"
        )
        self._say_once(wecom.key_env, reason)
        for alert in list(book.history.outbox):
            book.append(ev.AlertFailed(id=alert, errcode=0, reason=reason, permanent=True))

    def _say_once(self, key: str, text: str) -> None:
        """Until a delivery works again."""
        if key not in self._said:
            self._said.add(key)
            self._say(text)


def _robot_name(wecom: WeCom) -> tuple[str, str]:
    return (wecom.base_url, wecom.key_env)
