"""Outbox, courier and robot together: kept or dropped, never twice after a recorded errcode 0, never the key."""

import time

import pytest

from contract import events as ev
from contract.events import decode
from supervisor.adapters.courier import Courier
from supervisor.adapters.leadership import take
from supervisor.book import Book
from supervisor.demo.robot import Answer
from supervisor.mail import Mail
from tests.supervisor.conftest import bare_run, config_of, wait_for


def _alert(key: str, severity: str = "critical") -> ev.AlertQueued:
    words = {"zh": f"消息 {key}", "en": f"message {key}"}
    return ev.AlertQueued(id=f"id-{key}", key=key, severity=severity, title=words, text=words)


class Office:
    """One run with its outbox; time is ours to move."""

    def __init__(self, root, robot, key: str | None = None) -> None:
        self.robot, self.lines, self.now = robot, [], time.time()
        self.wecom = config_of(alerts={"wecom": {"base_url": robot.url}}).alerts.wecom
        self.run = bare_run(root)
        self.leadership = take(root)
        self.environment = {"CIUIC_WECOM_KEY": robot.key if key is None else key}
        self.open()

    def open(self) -> None:
        """As after a start: everything in memory is new."""
        self.courier = Courier()
        self.mail = Mail(self.courier, self.environment, self.lines.append)
        self.book = Book(
            self.run, clock=lambda: self.now, epoch=self.leadership.epoch, guard=self.leadership.check
        )
        self.mail.remember(self.wecom, self.book.history.sent_at)

    def go(self, seconds: float = 0.0) -> None:
        """Send what is due after so long, and record the answer."""
        self.now += seconds
        self.mail.deliver(self.book, self.wecom, self.now)
        self.courier.wait(10)
        self.mail.collect(self.book, self.wecom)

    def close(self) -> None:
        self.courier.wait(10)
        self.book.close()
        self.leadership.release()

    @property
    def written(self) -> str:
        return self.run.journal.read_text() + "".join(self.lines)


@pytest.fixture
def office(root, robot):
    made = Office(root, robot)
    yield made
    assert robot.key not in made.written
    made.close()


def test_a_delivered_alert_is_never_sent_again(office) -> None:
    office.book.append(_alert("a"))
    office.go()
    assert office.robot.texts() == ["消息 a"]
    assert office.book.history.alerts_sent == 1
    office.go(3600)
    office.book.close()
    office.open()
    office.go(3600)
    assert office.robot.requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(errcode=-1),
        Answer(errcode=45009),
        Answer(status=500),
        Answer(body=b"nonsense"),
        Answer(body=b"[]"),
    ],
)
def test_what_may_pass_is_kept_and_sent_later(office, answer) -> None:
    office.robot.script(answer)
    office.book.append(_alert("a"))
    office.go()
    assert office.book.history.outbox
    office.go(0.1)
    assert office.robot.requests == 1  # not at once
    office.go(61)
    assert not office.book.history.outbox
    assert office.book.history.alerts_sent == 1
    assert len(office.robot.texts()) == 1


@pytest.mark.parametrize("errcode", [93000, 40008, 40058])
def test_what_cannot_pass_is_dropped_and_said(office, errcode: int) -> None:
    office.robot.script(Answer(errcode=errcode))
    office.book.append(_alert("a"))
    office.go()
    office.go(3600)
    assert not office.book.history.outbox
    assert office.book.history.alerts_failed == 1
    assert office.robot.requests == 1
    assert str(errcode) in office.lines[0]


def test_a_time_out_is_repeated_and_marked(office) -> None:
    office.robot.script(Answer(hang_s=0.2, accept=True))  # it arrives, but the answer gets lost
    office.book.append(_alert("a"))
    office.go()
    assert office.book.history.outbox
    office.go(61)
    assert office.robot.texts() == ["消息 a", "（可能重复）消息 a"]


def test_a_crash_between_try_and_outcome_repeats_it_marked(office) -> None:
    office.book.append(_alert("a"))
    office.mail.deliver(office.book, office.wecom, office.now)  # tried; nobody records the outcome
    office.courier.wait(10)
    office.book.close()
    office.open()
    office.go(61)
    assert office.robot.texts() == ["消息 a", "（可能重复）消息 a"]


def test_more_alerts_than_the_rate_allows_are_folded_or_wait(office) -> None:
    for number in range(40):
        office.book.append(_alert(str(number)))
    for _ in range(30):
        office.go(0.1)
    assert office.robot.requests <= 15
    for _ in range(10):
        office.go(61)
    assert not office.book.history.outbox
    assert all(len(text.encode()) <= 2048 for text in office.robot.texts())


def test_without_a_key_nothing_piles_up_and_it_is_said_once(root, robot) -> None:
    office = Office(root, robot, key="")
    for number in range(3):
        office.book.append(_alert(str(number)))
        office.go()
    assert office.lines == ["alerts are not configured (set CIUIC_WECOM_KEY)"]
    assert not office.book.history.outbox
    assert office.book.history.alerts_failed == 3
    office.close()


def test_a_slow_robot_does_not_hold_up_a_round(office) -> None:
    office.robot.script(Answer(hang_s=1.0))
    office.book.append(_alert("a"))
    began = time.monotonic()
    office.mail.deliver(office.book, office.wecom, office.now)
    office.mail.deliver(office.book, office.wecom, office.now)
    assert time.monotonic() - began < 0.5
    assert office.courier.busy
    wait_for(lambda: office.courier.collect("t-1"))


def test_the_try_stands_in_the_journal_before_the_message_leaves(office) -> None:
    office.robot.script(Answer(hang_s=1.0))
    office.book.append(_alert("a"))
    office.mail.deliver(office.book, office.wecom, office.now)
    kinds = [type(decode(line).body) for line in office.run.journal.read_bytes().splitlines()]
    assert kinds[-1] is ev.AlertTried
