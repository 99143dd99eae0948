"""Acknowledge, silence, digest: what people said of the alerts, and what the day's report says."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.fold import fold
from contract.history import History
from contract.requests import Request, RequestKind
from contract.states import RunState
from supervisor.core.actions import Answer, Tell
from supervisor.core.decide import decide
from supervisor.core.digest import digests
from supervisor.core.heard import heard
from supervisor.core.judge import judge
from supervisor.core.status import status
from tests.supervisor.core.make import NOW, events, failure, history, seen
from tests.supervisor.core.world import small_config

ACK = Request(id="1", kind=RequestKind.ACK, by="li")
TOLD = ev.AlertQueued(id="f", key="failure:hang", severity="warning", title={}, text={})
BACK = ev.Recovered(
    attempt=1, generation=2, step=9, failed_attempt=1, failed_generation=1, detect_s=2.0, restart_s=60.0, repeated_steps=3
)  # fmt: skip


def silence(until: float) -> Request:
    return Request(id="2", kind=RequestKind.SILENCE, by="li", args={"until": until})


def acknowledged(*more: ev.Body) -> History:
    return history(failure(cause="hang"), TOLD, ev.AlertsAcknowledged(by="li", keys=("failure:hang",)), *more)


def test_an_acknowledgement_names_who_and_what() -> None:
    (answer,) = heard(history(failure(cause="hang"), TOLD), [ACK], NOW)
    assert answer.ok
    assert answer.events == (ev.AlertsAcknowledged(by="li", keys=("failure:hang",)),)
    assert "acknowledged by li: hang" in answer.outcome
    assert not heard(history(), [ACK], NOW)[0].ok


def _decided(told: History, observation, config=None):
    config = config or small_config()
    return decide(told, observation, judge(observation, told, config, NOW), config, NOW)


def test_what_is_acknowledged_is_not_told_again_until_progress() -> None:
    again = acknowledged(
        BACK,
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason=""),
        failure(cause="hang", generation=2, signature="x"),
    )
    assert not any(isinstance(action, Tell) for action in _decided(again, seen(generation=2)))
    forgotten = replace(again, acknowledged=None)
    assert any(isinstance(action, Tell) for action in _decided(forgotten, seen(generation=2)))


def test_the_recovery_is_told_once_the_incident_is_over() -> None:
    back = acknowledged(ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason=""), BACK)
    assert not any(isinstance(action, Tell) for action in _decided(back, seen(generation=2)))
    over = fold(events(ev.CheckpointSeen(step=10, attempt=1, generation=2), at=NOW), back)
    assert over.acknowledged is None
    keys = [action.alert.key for action in _decided(over, seen(generation=2)) if isinstance(action, Tell)]
    assert keys == ["recovered:1.2"]


def test_a_checkpoint_before_the_recovery_ends_no_incident() -> None:
    assert acknowledged(ev.CheckpointSeen(step=10, attempt=1, generation=1)).acknowledged is not None
    assert acknowledged(ev.StateChanged(state="pending", reason="resumed")).acknowledged is None


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({}, "failed"),
        ({"supervisor": {"observe_only": True}}, "running"),
        ({"metadata": {"labels": {"ciuic.io/watchdog": "false"}}}, "running"),
    ],
)
def test_people_are_heard_whatever_the_run_is(config, state: str) -> None:
    told = history(failure(cause="hang"), TOLD, ev.StateChanged(state=state, reason=""))
    asked = seen(requests=(ACK, silence(NOW + 60)))
    answers = [item for item in _decided(told, asked, small_config(**config)) if isinstance(item, Answer)]
    assert [item.ok for item in answers] == [True, True]


def test_a_silence_has_an_end_and_can_be_ended() -> None:
    (answer,) = heard(history(), [silence(NOW + 7200)], NOW)
    assert answer.events == (ev.AlertsSilenced(by="li", until=NOW + 7200),)
    (answer,) = heard(history(), [silence(NOW + 1e9)], NOW)
    assert answer.events == (ev.AlertsSilenced(by="li", until=NOW + 7 * 86_400),)
    (answer,) = heard(history(), [silence(0.0)], NOW)
    assert answer.events == (ev.AlertsSilenced(by="li", until=0.0),)
    assert not heard(history(), [replace(silence(0), args={})], NOW)[0].ok


def test_status_shows_who_knows_and_who_wants_silence() -> None:
    told = acknowledged(ev.AlertsSilenced(by="wang", until=NOW + 60))
    observation = seen()
    verdict = judge(observation, told, small_config(), NOW)
    alerts = status(told, observation, verdict, NOW)["alerts"]
    assert (alerts["acknowledged"]["by"], alerts["silenced"]) == ("li", {"by": "wang", "until": NOW + 60})
    assert status(told, observation, verdict, NOW + 61)["alerts"]["silenced"] is None


# --- the digest

NINE = 1_800_000_000 // 86_400 * 86_400 + 3600.0  # 09:00 in China
CONFIG = small_config(alerts={"wecom": {"digest": "09:00"}})


def lived(*more: ev.Body, at: float = NINE - 7200) -> History:
    return fold(
        events(
            ev.RunCreated(run="r", config_digest="", version="0", target_steps=100, target_tokens=0),
            ev.AttemptIntended(attempt=1, tag="t", reason=""),
            ev.AttemptSubmitted(attempt=1, job_id="77"),
            ev.GenerationWent(attempt=1, generation=1, members=("n0", "n1"), master="n0", port=4000),
            ev.GenerationResumed(attempt=1, generation=1, step=0),
            ev.StateChanged(state="running", reason=""),
            *more,
            at=at,
        )
    )


def test_the_digest_comes_once_a_day_at_the_readers_hour() -> None:
    told = lived()
    assert not digests(told, seen(), CONFIG, NINE - 1)
    (alert,) = digests(told, seen(), CONFIG, NINE)
    assert alert.receivers == ("wecom:CIUIC_WECOM_KEY",)
    after = fold(events(alert, at=NINE + 5), told)
    assert not after.open_keys
    assert not digests(after, seen(), CONFIG, NINE + 3600)
    assert not digests(after, seen(), CONFIG, NINE + 86_399)
    assert digests(after, seen(), CONFIG, NINE + 86_400)
    assert digests(told, seen(), CONFIG, NINE + 20_000), "a supervisor that starts late tells it late"
    assert not digests(lived(at=NINE + 60), seen(), CONFIG, NINE + 3600), "the run began after the hour"
    assert not digests(told, seen(), small_config(), NINE)


def test_the_digest_says_state_step_failures_and_what_they_cost() -> None:
    told = lived(
        failure(cause="hang"),
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason=""),
        BACK,
        failure(cause="network", generation=2),
    )
    (alert,) = digests(told, seen(generation=2), CONFIG, NINE)
    for part in (
        "r：训练中",
        "24 小时内故障 2 次（卡住 1、网络故障 1）",
        "损失 62 秒（卡住 62 秒），重算 3 步",
    ):
        assert part in alert.text["zh"]
    assert "2 failures in 24 h (hang 1, network 1), lost 62 s (hang 62 s), 3 steps twice" in alert.text["en"]
    assert "24 小时内无故障" in digests(lived(), seen(), CONFIG, NINE)[0].text["zh"]


def test_a_run_that_is_over_is_in_one_digest() -> None:
    done = lived(ev.StateChanged(state="completed", reason=""))
    assert done.state is RunState.COMPLETED
    (alert,) = digests(done, seen(), CONFIG, NINE)
    after = fold(events(alert, at=NINE + 5), done)
    assert not digests(after, seen(), CONFIG, NINE + 86_400)
    assert not digests(done, seen(), CONFIG, NINE + 2 * 86_400), "long over"
