"""The outbox: order, rate, retries, repeats, folding, and what the robot's answers mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import events as ev
from contract.config.supervision import WeCom
from contract.history import History, fold
from supervisor.core.actions import Wait
from supervisor.core.outbox import TEXT_BYTES, Deliver, Fate, classify, next_delivery
from supervisor.core.text import cut, size

NOW = 5_000.0
WECOM = WeCom(mention=["li"])


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


def after(history: History) -> Deliver | Wait | None:
    return next_delivery(history, history.sent_at, WECOM, NOW)


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
    assert classify(301, tries=5) is Fate.DROP


def test_an_empty_outbox_has_nothing_to_say() -> None:
    assert after(box()) is None


def test_the_oldest_first_but_critical_before_all() -> None:
    assert after(box((1, alert("a")), (2, alert("b", "info")))).id == "a"
    found = after(box((1, alert("a")), (2, alert("b", "critical"))))
    assert (found.id, found.mentions) == ("b", ("li",))


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
        found = next_delivery(box(*bodies), (), WECOM, NOW)
        assert isinstance(found, Wait)
        waits.append(found.until - NOW)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_refused_for_the_rate_everything_waits_a_minute() -> None:
    limited = ev.AlertFailed(id="a", errcode=45009, reason="freq", permanent=False)
    found = next_delivery(
        box((0, alert("a")), (NOW, ev.AlertTried(id="a")), (NOW, limited), (NOW, alert("b", "critical"))),
        (),
        WECOM,
        NOW + 1,
    )
    assert found == Wait(until=NOW + 60, reason="alert b waits for its turn")


def test_the_rate_budget_is_the_robots_not_the_runs() -> None:
    sent = [NOW - 59 + number for number in range(WECOM.per_minute)]
    found = next_delivery(box((0, alert("a"))), sent, WECOM, NOW)
    assert found.until == pytest.approx(NOW + 1)
    assert isinstance(next_delivery(box((0, alert("a"))), sent[1:], WECOM, NOW), Deliver)
    future = [NOW + 500 for _ in range(WECOM.per_minute)]
    assert next_delivery(box((0, alert("a"))), future, WECOM, NOW).until <= NOW + 60, "a clock set back"


def test_many_waiting_ones_become_one_message() -> None:
    found = after(box(*[(number, alert(f"a{number}")) for number in range(100)]))
    assert found.id == "a0"
    assert len(found.also) == 99
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
        bodies += [(NOW, ev.AlertDelivered(id=name)) for name in (*found.also, found.id)]
    assert messages <= 4


def test_nothing_is_lost_when_a_folded_message_is_interrupted() -> None:
    bodies: list[tuple[float, ev.Body]] = [(float(number), alert(f"a{number}")) for number in range(6)]
    found = after(box(*bodies))
    bodies += [(10, ev.AlertTried(id=found.id)), (11, ev.AlertDelivered(id=found.also[0]))]
    again = after(box(*bodies))
    assert again.id == found.id
    assert again.maybe_duplicate


def test_the_language_is_the_configured_one() -> None:
    english = WeCom(language="en")
    assert next_delivery(box((0, alert("a"))), (), english, NOW).text == "text a"


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
