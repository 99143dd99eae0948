"""Outbox, courier and robot together: kept or dropped, never twice after a recorded errcode 0, never the key."""

import time
from dataclasses import replace

import pytest

from contract import events as ev
from contract.config.alerts import DingTalk, Feishu, Webhook, WeCom
from contract.event_lines import decode
from contract.fold import fold
from supervisor.adapters.leadership import take
from supervisor.book import Book
from supervisor.core.outbox import addressed
from supervisor.demo.robot import Answer
from supervisor.mail import Mail, held_back
from supervisor.render import alert_notes
from tests.supervisor.conftest import bare_run, config_of, wait_for
from tests.supervisor.robots import DingTalkRobot, FeishuRobot, JsonServer


def _alert(key: str, severity: str = "critical") -> ev.AlertQueued:
    words = {"zh": f"消息 {key}", "en": f"message {key}"}
    return ev.AlertQueued(id=f"id-{key}", key=key, severity=severity, title=words, text=words)


class Office:
    """One run with its outbox; time is ours to move."""

    def __init__(self, root, robot, key: str | None = None) -> None:
        self.robot, self.lines, self.now = robot, [], time.time()
        self.receivers = config_of(alerts={"wecom": {"base_url": robot.url}}).alerts.receivers
        self.run = bare_run(root)
        self.leadership = take(root)
        self.environment = {"CIUIC_WECOM_KEY": robot.key if key is None else key}
        self.open()

    def open(self) -> None:
        """As after a start: everything in memory is new."""
        self.mail = Mail(self.environment, self.lines.append)
        self.book = Book(
            self.run, clock=lambda: self.now, epoch=self.leadership.epoch, guard=self.leadership.check
        )
        self.mail.join(self.book, self.receivers)

    def go(self, seconds: float = 0.0) -> None:
        """Send what is due after so long, and record the answer."""
        self.now += seconds
        self.mail.deliver(self.book, self.receivers, self.now)
        self.mail.wait(10)

    def close(self) -> None:
        self.mail.wait(10)
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
    office.mail.deliver(office.book, office.receivers, office.now)  # tried; nobody records the outcome
    wait_for(office.robot.texts)
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
    office.mail.deliver(office.book, office.receivers, office.now)
    office.mail.deliver(office.book, office.receivers, office.now)
    assert time.monotonic() - began < 0.5
    assert office.mail.busy
    office.mail.wait(10)
    assert not office.mail.busy


def test_the_try_stands_in_the_journal_before_the_message_leaves(office) -> None:
    office.robot.script(Answer(hang_s=1.0))
    office.book.append(_alert("a"))
    office.mail.deliver(office.book, office.receivers, office.now)
    kinds = [type(decode(line).body) for line in office.run.journal.read_bytes().splitlines()]
    assert kinds[-1] is ev.AlertTried


# --- several receivers, several runs


class Building:
    """Many runs of one supervisor, told through the same robots; time is ours to move, the robots' too."""

    def __init__(self, root, receivers, environment, servers, runs: int = 1) -> None:
        self.now, self.lines, self.receivers, self.environment = time.time(), [], receivers, environment
        self.leadership = take(root)
        for server in servers:
            server.clock = lambda: self.now
        self.runs = [bare_run(root, f"t-{number}") for number in range(1, runs + 1)]
        self.open()

    def open(self) -> None:
        self.mail = Mail(self.environment, self.lines.append)
        self.books = [
            Book(run, clock=lambda: self.now, epoch=self.leadership.epoch, guard=self.leadership.check)
            for run in self.runs
        ]

    def pass_(self, seconds: float = 1.0) -> None:
        """One pass of the supervisor over all runs."""
        for book in self.books:
            self.mail.join(book, self.receivers)
        for book in self.books:
            self.mail.deliver(book, self.receivers, self.now)
            self.mail.wait(10)
        self.now += seconds

    def until_empty(self, seconds: float = 30.0) -> None:
        for _ in range(2000):
            if not any(book.history.outbox for book in self.books):
                return
            self.pass_(seconds)
        raise AssertionError("something stays in an outbox")

    def close(self) -> str:
        """Everything that was written."""
        for book in self.books:
            book.close()
        self.leadership.release()
        return "".join(run.journal.read_text() for run in self.runs) + "".join(self.lines)


def _failure(run: str, number: int, severity: str = "warning", cause: str = "hang") -> ev.AlertQueued:
    return ev.AlertQueued(
        id=f"failure-{number}", key=f"failure:{cause}", severity=severity,
        title={"zh": f"【{run}】rank {number % 7}：卡住"}, text={"zh": f"【{run}】rank {number % 7}：卡住，第 {number} 步"},
    )  # fmt: skip


def _addressed(book, body, receivers) -> None:
    book.append(replace(body, receivers=addressed(body, receivers)))


def test_every_service_gets_its_message_and_each_its_own_severity(root, robot) -> None:
    with (
        FeishuRobot(secret="s3cret-f") as feishu,
        DingTalkRobot(secret="s3cret-d") as ding,
        JsonServer() as hook,
    ):
        receivers = (
            WeCom(base_url=robot.url),
            Feishu(base_url=feishu.url, secret_env="SF", min_severity="warning"),
            DingTalk(base_url=ding.url, secret_env="SD", min_severity="critical", mention=["@all"]),
            Webhook(),
        )
        environment = {
            "CIUIC_WECOM_KEY": robot.key, "CIUIC_FEISHU_KEY": feishu.key, "SF": "s3cret-f",
            "CIUIC_DINGTALK_KEY": ding.key, "SD": "s3cret-d", "CIUIC_WEBHOOK_URL": hook.address,
        }  # fmt: skip
        building = Building(root, receivers, environment, (robot, feishu, ding, hook))
        for severity in ("info", "warning", "critical"):
            body = replace(_alert(severity), severity=severity)
            _addressed(building.books[0], body, receivers)
        building.until_empty()
        assert sorted(robot.texts()) == ["消息 critical", "消息 info", "消息 warning"]
        assert sorted(feishu.texts()) == ["消息 critical", "消息 warning"]
        assert (ding.texts(), ding.messages[0].mentioned) == (["消息 critical"], ("@all",))
        assert {value["severity"] for value in hook.values} == {"info", "warning", "critical"}
        written = building.close()
        for secret in environment.values():
            assert secret not in written
        assert hook.key not in written


def test_a_robot_that_is_down_does_not_keep_the_others_waiting(root, robot) -> None:
    with FeishuRobot() as feishu:
        receivers = (WeCom(base_url="http://127.0.0.1:9"), Feishu(base_url=feishu.url))
        building = Building(
            root, receivers, {"CIUIC_WECOM_KEY": "k", "CIUIC_FEISHU_KEY": feishu.key}, (feishu,)
        )
        _addressed(building.books[0], _alert("a"), receivers)
        building.pass_()
        assert feishu.texts() == ["消息 a"]
        building.pass_(100)
        assert feishu.requests == 1
        assert [state.receiver for state in building.books[0].history.outbox.values()] == [
            "wecom:CIUIC_WECOM_KEY"
        ]
        building.close()


def test_one_of_two_robots_without_a_key_is_said_and_the_other_works(root, robot) -> None:
    receivers = (WeCom(key_env="OPS"), WeCom(base_url=robot.url))
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,))
    _addressed(building.books[0], _alert("a"), receivers)
    building.until_empty()
    assert robot.texts() == ["消息 a"]
    assert building.lines == ["alerts are not configured (set OPS)"]
    building.close()


def test_fifty_runs_that_fail_together_are_one_message(root, robot) -> None:
    receivers = (WeCom(base_url=robot.url),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,), runs=50)
    for number, book in enumerate(building.books):
        _addressed(book, _failure(book.run.run_id, number, cause="network"), receivers)
        if number % 10 == 9:  # they are seen over five seconds
            building.pass_()
    building.until_empty(1.0)
    assert len(robot.texts()) == 1
    for part in ("50 个任务", "网络故障 50 个任务", "共同原因"):
        assert part in robot.texts()[0]
    assert all(book.history.alerts_sent == 1 for book in building.books)
    building.close()


def test_a_storm_of_five_hundred_faults_is_a_readable_handful_and_ends_with_the_last_state(
    root, robot
) -> None:
    """Ten runs fail and recover for half an hour; the robot refuses more than 20 a minute."""
    receivers = (WeCom(base_url=robot.url),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,), runs=10)
    for number in range(500):
        book = building.books[number % 10]
        _addressed(book, _failure(book.run.run_id, number), receivers)
        back = ev.AlertQueued(
            id=f"recovered-{number}", key=f"recovered:{number}", severity="info", answers="warning",
            title={"zh": f"【{book.run.run_id}】已恢复训练"}, text={"zh": f"已恢复，第 {number} 步"},
        )  # fmt: skip
        _addressed(book, back, receivers)
        building.pass_(3.6)
    for book in building.books:
        book.append(ev.StateChanged(state="running", reason=""))
    building.until_empty()
    texts = robot.texts()
    assert robot.requests == len(texts), "the rate budget was kept: the robot refused nothing"
    assert len(texts) <= 15
    assert all(len(text.encode()) <= 2048 for text in texts)
    assert "训练中 10" in texts[-1]
    assert all(f"- t-{number}：已恢复训练" in texts[-1] for number in range(1, 11))
    assert sum(book.history.alerts_sent for book in building.books) == 1000
    building.close()


def test_a_crash_after_a_message_for_many_runs_repeats_it_marked_and_counts_it_once(root, robot) -> None:
    receivers = (WeCom(base_url=robot.url),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,), runs=5)
    for number, book in enumerate(building.books):
        _addressed(book, _failure(book.run.run_id, number), receivers)
    building.now += 5
    for book in building.books:
        building.mail.join(book, receivers)
    building.mail.deliver(building.books[0], receivers, building.now)
    wait_for(robot.texts)
    for book in building.books:
        book.close()  # killed: the outcome is recorded nowhere
    building.open()
    building.now += 61
    building.until_empty()
    assert len(robot.texts()) == 2
    assert robot.texts()[1].startswith("（可能重复）【ciuic】5 个任务")
    assert len({at for book in building.books for _, at in book.history.sent_at}) == 2
    building.close()


def test_a_run_whose_journal_cannot_be_written_does_not_hold_up_the_others(root, robot) -> None:
    receivers = (WeCom(base_url=robot.url),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,), runs=4)
    for number, book in enumerate(building.books):
        _addressed(book, _failure(book.run.run_id, number), receivers)
    building.now += 5
    building.runs[0].journal.rename(root.path / "gone")
    for book in building.books:
        building.mail.join(book, receivers)
    building.mail.deliver(building.books[1], receivers, building.now)
    building.mail.wait(10)
    assert all(not book.history.outbox for book in building.books[1:])
    assert any("t-1: its outbox could not be written" in line for line in building.lines)
    (root.path / "gone").rename(building.runs[0].journal)
    building.close()


def test_the_digests_of_all_runs_are_one_message_with_those_that_need_a_person_first(root, robot) -> None:
    receivers = (WeCom(base_url=robot.url, digest="09:00", min_severity="critical"),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,), runs=30)
    for number, book in enumerate(building.books):
        run = book.run.run_id
        book.append(ev.StateChanged(state="failed" if number == 20 else "running", reason=""))
        line = {
            "zh": f"{run}：{'已失败' if number == 20 else '训练中'}，第 100/2000 步，有效训练时间 99.1%，24 小时内无故障"
        }
        alert = ev.AlertQueued(
            id="digest-x",
            key="digest:2026-11-30",
            severity="info",
            title=line,
            text=line,
            receivers=(receivers[0].name,),
        )
        _addressed(book, alert, receivers)
    building.until_empty(1.0)
    (text,) = robot.texts()
    assert text.startswith("【ciuic】2026-11-30 日报：30 个任务\n状态：已失败 1（t-21）；训练中 29（t-1、")
    assert text.splitlines()[2].startswith("- t-21：已失败")
    assert "…还有" in text.splitlines()[-1]
    assert len(text.encode()) <= 2048
    building.close()


def test_at_night_only_what_is_critical_goes_and_the_morning_gets_the_rest_in_one_message(
    root, robot
) -> None:
    receivers = (WeCom(base_url=robot.url, quiet="22:00-08:00"),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,))
    building.now = 1_800_000_000 // 86_400 * 86_400 + 15 * 3600.0  # 23:00 in China
    (book,) = building.books
    for number in range(6):
        _addressed(book, _failure("t-1", number), receivers)
    _addressed(book, _alert("stopped"), receivers)
    for _ in range(20):
        building.pass_(60)
    assert robot.texts() == ["消息 stopped"]
    assert building.mail.held(book, receivers, building.now)
    building.now += 9 * 3600
    building.until_empty()
    assert len(robot.texts()) == 2
    assert "另有 5 条" in robot.texts()[1]
    building.close()


def test_a_silenced_run_is_quiet_until_the_end_and_then_tells_in_one_message(root, robot) -> None:
    receivers = (WeCom(base_url=robot.url),)
    building = Building(root, receivers, {"CIUIC_WECOM_KEY": robot.key}, (robot,))
    (book,) = building.books
    book.append(ev.AlertsSilenced(by="li", until=building.now + 3600))
    for number in range(8):
        _addressed(book, _failure("t-1", number, severity="critical"), receivers)
        building.pass_(60)
    book.close()
    building.open()  # a restart forgets nothing
    building.pass_(3600)
    assert robot.texts() == []
    building.until_empty()
    assert len(robot.texts()) == 1
    building.close()


def test_status_says_why_a_message_waits() -> None:
    told = [ev.AlertTried(id=f"x{number}", at=1000.0 + number) for number in range(12)]
    news = ev.AlertQueued(id="a", key="a", severity="info", title={"en": "a"}, text={"en": "a"})
    history = fold(
        ev.Event(seq=number, time=1100.0, epoch=1, body=body)
        for number, body in enumerate([*told, news], start=1)
    )
    waits = held_back(history, (WeCom(),), 1131.0)
    assert waits is not None
    [line] = alert_notes({"held_back": {"reason": waits.reason, "until": time.time() + 480}}, "en")
    assert line.startswith("Held back: more than 12 this hour, next in ")
    assert waits.until == 1611.0
    assert held_back(history, (WeCom(),), 1611.0) is None
