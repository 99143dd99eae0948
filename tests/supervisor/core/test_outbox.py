"""The outbox: order, rate, retries, repeats, folding, and what the robot's answers mean."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import events as ev
from contract.config.alerts import DingTalk, Feishu, WeCom
from contract.fold import fold
from contract.history import History
from contract.states import RunState
from supervisor.core.actions import Wait
from supervisor.core.outbox import Deliver, Waiting, addressed, next_delivery, waiting
from supervisor.core.services import Fate, classify
from supervisor.core.text import cut, size

NOW = 5_000.0
WECOM = WeCom(mention=["li"])
NAMES = frozenset({"", WECOM.name})
TEXT_BYTES = 2048


def alert(name: str, severity: str = "warning", text: str = "") -> ev.AlertQueued:
    return ev.AlertQueued(
        id=name,
        key=name,
        severity=severity,
        title={"zh": f"标题{name}", "en": f"title {name}"},
        text={"zh": text or f"正文{name}", "en": f"text {name}"},
    )


def box(*bodies: tuple[float, ev.Body]) -> History:
    return fold(
        ev.Event(seq=number, time=at, epoch=1, body=body) for number, (at, body) in enumerate(bodies, start=1)
    )


def boxes(*histories: History) -> list[Waiting]:
    found = [waiting(f"r-{number}", history, NAMES) for number, history in enumerate(histories, start=1)]
    return [item for item in found if item is not None]


def after(*histories: History, receiver=WECOM, now: float = NOW) -> Deliver | Wait | None:
    sent = sorted({at for history in histories for _, at in history.sent_at})
    return next_delivery(boxes(*histories), sent, receiver, now, alone=len(histories) < 2)


def ids(found: Deliver) -> list[str]:
    return [name for part in found.parts.values() for name in part]


@pytest.mark.parametrize(
    ("errcode", "status", "fate"),
    [
        (0, 200, Fate.SENT),
        (-1, 200, Fate.RETRY),
        (45009, 200, Fate.RETRY),
        (93000, 200, Fate.DROP),
        (40008, 200, Fate.DROP),
        (40058, 200, Fate.DROP),
        (None, 500, Fate.RETRY),
        (None, 502, Fate.RETRY),
        (None, 403, Fate.RETRY),
        (None, 0, Fate.RETRY),
        (None, 200, Fate.RETRY),
        (301, 200, Fate.RETRY),
    ],
)
def test_what_an_answer_means(errcode: int | None, status: int, fate: Fate) -> None:
    assert classify(errcode, status) is fate


def test_a_strange_errcode_is_not_repeated_for_ever() -> None:
    assert classify(301, 200, tries=5) is Fate.DROP


def test_an_empty_outbox_has_nothing_to_say() -> None:
    assert after(box()) is None


def test_the_oldest_first_but_critical_before_all() -> None:
    assert ids(after(box((1, alert("a")), (2, alert("b", "info"))))) == ["a"]
    found = after(box((1, alert("a")), (2, alert("b", "critical"))))
    assert (ids(found), found.mentions) == (["b"], ("li",))


def test_a_delivered_one_is_never_sent_again() -> None:
    assert after(box((1, alert("a")), (2, ev.AlertTried(id="a")), (3, ev.AlertDelivered(id="a")))) is None


def test_a_dropped_one_is_not_sent_again() -> None:
    refused = ev.AlertFailed(id="a", errcode=93000, reason="invalid webhook url", permanent=True)
    assert after(box((1, alert("a")), (2, ev.AlertTried(id="a")), (3, refused))) is None


def test_a_try_without_an_outcome_is_repeated_with_a_mark() -> None:
    found = after(box((1, alert("a")), (2, ev.AlertTried(id="a"))))
    assert found.maybe_duplicate
    assert found.text == "（可能重复）正文a"


@pytest.mark.parametrize(("errcode", "marked"), [(0, True), (504, True), (-1, False), (45009, False)])
def test_only_what_the_robot_did_not_answer_may_be_a_repeat(errcode: int, marked: bool) -> None:
    lost = ev.AlertFailed(id="a", errcode=errcode, reason="x", permanent=False)
    assert after(box((1, alert("a")), (2, ev.AlertTried(id="a")), (3, lost))).maybe_duplicate is marked


def test_retries_back_off_and_never_longer_than_a_minute() -> None:
    waits = []
    for tries in range(1, 9):
        bodies = [(0.0, alert("a"))]
        for _ in range(tries):
            bodies += [
                (NOW, ev.AlertTried(id="a")),
                (NOW, ev.AlertFailed(id="a", errcode=-1, reason="busy", permanent=False)),
            ]
        found = next_delivery(boxes(box(*bodies)), (), WECOM, NOW)
        assert isinstance(found, Wait)
        waits.append(found.until - NOW)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_refused_for_the_rate_everything_waits_a_minute() -> None:
    limited = ev.AlertFailed(id="a", errcode=45009, reason="freq", permanent=False)
    waiting_ones = boxes(
        box((0, alert("a")), (NOW, ev.AlertTried(id="a")), (NOW, limited), (NOW, alert("b", "critical")))
    )
    found = next_delivery(waiting_ones, (), WECOM, NOW + 1)
    assert found == Wait(until=NOW + 60, reason="alert b waits for its turn")


def test_the_rate_budget_is_the_robots_not_the_runs() -> None:
    sent = [NOW - 59 + number for number in range(WECOM.per_minute)]
    urgent = boxes(box((0, alert("a", "critical"))))
    assert next_delivery(urgent, sent, WECOM, NOW).until == pytest.approx(NOW + 1)
    assert isinstance(next_delivery(urgent, sent[1:], WECOM, NOW), Deliver)
    future = [NOW + 500 for _ in range(WECOM.per_minute)]
    assert next_delivery(urgent, future, WECOM, NOW).until <= NOW + 60, "a clock set back"


def test_many_waiting_ones_become_one_message() -> None:
    found = after(box(*[(number, alert(f"a{number}")) for number in range(100)]))
    assert ids(found) == [f"a{number}" for number in range(100)]
    assert found.text.startswith("正文a99")  # the last word is how things are
    assert "另有 99 条" in found.text
    assert size(found.text) <= TEXT_BYTES


def test_a_storm_is_a_handful() -> None:
    bodies: list[tuple[float, ev.Body]] = [
        (float(number), alert(f"f{number}", ("warning", "info", "critical")[number % 3]))
        for number in range(500)
    ]
    messages = 0
    while (found := after(box(*bodies))) is not None:
        messages += 1
        bodies += [(NOW, ev.AlertDelivered(id=name)) for name in ids(found)]
    assert messages <= 4


def test_nothing_is_lost_when_a_folded_message_is_interrupted() -> None:
    bodies: list[tuple[float, ev.Body]] = [(float(number), alert(f"a{number}")) for number in range(6)]
    first, *rest = ids(after(box(*bodies)))
    bodies += [(10, ev.AlertTried(id=first, also=tuple(rest)))]
    again = after(box(*bodies))
    assert ids(again) == [first, *rest]
    assert again.maybe_duplicate


def test_the_language_is_the_configured_one() -> None:
    english = WeCom(language="en")
    assert after(box((0, alert("a"))), receiver=english).text == "text a"


@given(st.text(max_size=400), st.integers(30, 300))
def test_a_text_is_cut_on_a_characters_border_and_says_so(text: str, limit: int) -> None:
    found = cut(text, limit)
    assert size(found) <= limit
    assert found == text.encode(errors="replace").decode() or found.endswith("…（已截断）")


@given(st.text(min_size=600, max_size=3000))
def test_a_message_always_fits(text: str) -> None:
    tried = [(float(number), alert(f"a{number}", text=text)) for number in range(9)]
    found = after(box(*tried, (20, ev.AlertTried(id="a0"))))
    assert size(found.text) <= TEXT_BYTES


# --- many runs, spacing, hours


def failed_run(number: int, at: float, cause: str = "node-failure") -> History:
    body = ev.AlertQueued(
        id=f"f{number}",
        key=f"failure:{cause}",
        severity="warning",
        title={"zh": f"【r-{number}】节点 n{number}：失联", "en": f"[r-{number}] n{number}: lost"},
        text={"zh": f"正文{number}", "en": f"text {number}"},
    )
    return box((at, ev.RunCreated(run=f"r-{number}", config_digest="", version="", target_steps=1, target_tokens=0)),
               (at, ev.StateChanged(state="recovering", reason="")), (at, body))  # fmt: skip


def test_fifty_runs_that_fail_together_are_one_message_that_names_how_many() -> None:
    histories = [failed_run(number, NOW - 10 + number / 10) for number in range(1, 51)]
    found = after(*histories)
    assert len(found.parts) == 50
    for part in ("50 个任务", "节点失联 50 个任务", "恢复中 50", "共同原因", "- r-1：节点 n1：失联"):
        assert part in found.text
    assert size(found.text) <= TEXT_BYTES
    english = after(*histories, receiver=WeCom(language="en"))
    assert "50 runs" in english.text
    assert not any("\u4e00" <= char <= "\u9fff" for char in english.text)


def test_the_first_of_several_runs_waits_a_little_for_the_others_but_not_for_ever() -> None:
    assert after(failed_run(1, NOW), box()).until == NOW + 3
    assert isinstance(after(failed_run(1, NOW - 3), box()), Deliver)
    trickle = [failed_run(number, NOW - 16 + number) for number in range(1, 17)]
    assert isinstance(after(*trickle), Deliver)
    assert isinstance(after(failed_run(1, NOW)), Deliver), "a run alone has nobody to wait for"


def test_two_runs_are_told_one_by_one_with_all_details() -> None:
    found = after(failed_run(1, NOW - 10), failed_run(2, NOW - 9))
    assert (found.text, list(found.parts)) == ("正文1", [("r-1", "")])


def test_the_more_was_said_the_longer_the_rest_gathers_but_never_what_needs_a_person() -> None:
    said = [NOW - 100 - number for number in range(8)]
    calm = boxes(box((NOW - 1, alert("a"))))
    assert isinstance(next_delivery(calm, said, WECOM, NOW), Deliver), "the last one is long ago"
    said = [NOW - 10 - number for number in range(8)]
    assert next_delivery(calm, said, WECOM, NOW).until == NOW - 10 + 60
    assert isinstance(next_delivery(calm, said[:7], WECOM, NOW), Deliver)
    many = [NOW - 10 * number for number in range(1, 17)]
    assert next_delivery(calm, many, WECOM, NOW).until == NOW - 10 + 600
    urgent = boxes(box((NOW - 1, alert("a", "critical"))))
    assert isinstance(next_delivery(urgent, many, WECOM, NOW), Deliver)
    last_words = [Waiting(run="r", state=RunState.COMPLETED, alerts=calm[0].alerts)]
    assert next_delivery(last_words, many, WECOM, NOW).until == NOW - 10 + 60


def about(name: str, **more) -> ev.AlertQueued:
    return replace(alert(name), **more)


def test_what_somebody_must_act_on_does_not_wait_behind_news_but_for_the_robots_minute() -> None:
    said = [NOW - 10 * number for number in range(1, 17)]
    news = (NOW - 9, alert("news"))
    held = boxes(box(news, (NOW - 1, about("held:1", asks=True))))
    assert ids(next_delivery(held, said, WECOM, NOW)) == ["held:1"]
    minute = [NOW - 59 + number for number in range(WECOM.per_minute)]
    assert next_delivery(held, minute, WECOM, NOW).until == pytest.approx(NOW + 1)
    over = [replace(held[0], state=RunState.CANCELLED)]
    assert isinstance(next_delivery(over, said, WECOM, NOW), Wait), "of a run that is over nothing is asked"


@pytest.mark.parametrize("more", [{"asks": True}, {"severity": "critical"}, {"severity": "info"}])
def test_what_is_over_before_it_was_told_is_one_message_that_says_both_and_needs_nobody(more) -> None:
    said = [NOW - 10 * number for number in range(1, 17)]
    begun = about("held:1", **more)
    end = about("released:1", severity="info", answers="warning", ends="held:1")
    both = boxes(box((NOW - 9, begun), (NOW - 5, alert("other")), (NOW - 1, end)))
    assert next_delivery(both, said, WECOM, NOW).reason == "more than 12 this hour"
    found = next_delivery(both, (), WECOM, NOW)
    assert (ids(found), found.mentions) == (["held:1", "released:1"], ())
    assert found.text == "正文released:1\n\n另有 1 条：\n- 标题held:1"
    quiet = WeCom(quiet="00:00-23:59")
    assert isinstance(next_delivery(both, (), quiet, NOW), Wait)
    again = boxes(box((NOW - 1, end), (NOW, replace(begun, id="held-again"))))
    if more.get("severity") != "info":
        assert ids(next_delivery(again, said, WECOM, NOW)) == ["held-again"], "it is on again"


@pytest.mark.parametrize(
    ("clock", "free"),
    [("21:59", True), ("22:00", False), ("03:00", False), ("07:59", False), ("08:00", True), ("12:00", True)],
)
def test_quiet_hours_are_the_readers_and_critical_ones_still_go(clock: str, free: bool) -> None:
    hours, minutes = map(int, clock.split(":"))
    now = (
        1_800_000_000 // 86400 * 86400 + (hours - 8) * 3600 + minutes * 60.0
    )  # China is eight hours ahead of UTC
    receiver = WeCom(quiet="22:00-08:00")
    found = after(box((now, alert("a"))), receiver=receiver, now=now)
    assert isinstance(found, Deliver) is free
    if isinstance(found, Wait):
        assert (found.until - 0) % 86400 == 0  # 08:00 in China is midnight in UTC
        assert 0 < found.until - now <= 10 * 3600
    assert isinstance(after(box((now, alert("a", "critical"))), receiver=receiver, now=now), Deliver)


def test_a_silenced_run_waits_and_the_others_go_on() -> None:
    quiet = box((1, ev.AlertsSilenced(by="li", until=NOW + 60)), (2, alert("a", "critical")))
    loud = box((3, alert("b")))
    assert after(quiet) == Wait(until=NOW + 60, reason="quiet hours, or the run is silenced")
    assert ids(after(quiet, loud)) == ["b"]
    assert ids(after(quiet, now=NOW + 61)) == ["a"]
    ended = box(
        (1, ev.AlertsSilenced(by="li", until=NOW + 60)),
        (2, alert("a")),
        (3, ev.AlertsSilenced(by="li", until=0)),
    )
    assert ids(after(ended)) == ["a"]


def test_each_receiver_hears_what_is_loud_enough_for_it_and_the_end_of_what_it_heard() -> None:
    receivers = (WECOM, Feishu(min_severity="warning"), DingTalk(min_severity="critical"))
    end = ev.AlertQueued(id="r", key="recovered:1.2", severity="info", answers="warning", title={}, text={})
    assert addressed(alert("a", "info"), receivers) == ("wecom:CIUIC_WECOM_KEY",)
    assert len(addressed(alert("a", "warning"), receivers)) == 2
    assert len(addressed(alert("a", "critical"), receivers)) == 3
    assert len(addressed(end, receivers)) == 2


def test_the_robots_keyword_is_in_every_message() -> None:
    receiver = DingTalk(keyword="训练")
    assert after(box((0, alert("a"))), receiver=receiver).text == "训练正文a"
    assert after(box((0, alert("a", text="训练中断"))), receiver=receiver).text == "训练中断"


def test_after_too_fast_dingtalk_is_left_alone_for_ten_minutes() -> None:
    limited = ev.AlertFailed(id="a", errcode=130101, reason="send too fast", permanent=False)
    history = box((0, alert("a")), (NOW, ev.AlertTried(id="a")), (NOW, limited))
    assert next_delivery(boxes(history), (), DingTalk(), NOW + 1).until == NOW + 600


def test_what_happened_several_times_is_a_line_with_its_count() -> None:
    bodies = []
    for number in range(12):
        again = ev.AlertQueued(
            id=f"x{number}",
            key=f"k{number}",
            severity="warning",
            title={"zh": "【r-1】rank 3：卡住"},
            text={"zh": "正文"},
        )
        bodies.append((float(number), again))
    found = after(box(*bodies))
    assert "- rank 3：卡住 ×11" in found.text
