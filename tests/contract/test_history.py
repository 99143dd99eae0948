"""The fold: what the journal's events add up to."""

from dataclasses import fields

from contract import events as ev
from contract.event_lines import KINDS, decode, encode
from contract.fold import fold
from contract.history import History
from contract.states import RunState


def _events(*bodies: ev.Body, epoch: int = 1) -> list[ev.Event]:
    return [
        ev.Event(seq=number, time=float(number), epoch=epoch, body=body)
        for number, body in enumerate(bodies, start=1)
    ]


def _judged(step: int = 7, generation: int = 1) -> ev.Judged:
    return ev.Judged(
        attempt=1,
        generation=generation,
        verdict="crashed",
        cause="signal",
        reason="",
        step=step,
        signature="s",
    )


START = (
    ev.RunCreated(run="r", config_digest="", version="0", target_steps=10, target_tokens=0),
    ev.AttemptIntended(attempt=1, tag="t", reason="first"),
)


def test_a_retried_submission_keeps_its_number() -> None:
    history = fold(
        _events(
            *START,
            ev.SubmitFailed(attempt=1, reason="time-out", permanent=False),
            ev.AttemptIntended(attempt=1, tag="t", reason="again"),
            ev.AttemptSubmitted(attempt=1, job_id="5"),
        )
    )
    assert len(history.attempts) == 1
    assert history.newest is not None
    assert (history.newest.submit_failures, history.newest.job_id, history.newest.reason) == (1, "5", "first")


def test_only_a_checkpoint_past_the_failure_resets_the_budget() -> None:
    failed = fold(_events(*START, _judged(step=7)))
    assert len(failed.failures) == 1
    before = fold(_events(ev.CheckpointSeen(step=6, attempt=1, generation=1)), failed)
    assert len(before.failures) == 1
    past = fold(_events(ev.CheckpointSeen(step=7, attempt=1, generation=2)), before)
    assert past.failures == ()
    assert past.min_step == 1


def test_the_first_failure_of_a_generation_stays_its_failure() -> None:
    history = fold(_events(*START, _judged(step=7), _judged(step=8)))
    assert history.newest is not None
    assert history.newest.newest is not None
    assert history.newest.newest.failure == _judged(step=7)


def test_an_overtaken_supervisor_changes_nothing() -> None:
    history = fold(_events(*START, epoch=3))
    late = fold(_events(ev.StateChanged(state="failed", reason="late"), epoch=2), history)
    assert late == history
    newer = fold(_events(ev.StateChanged(state="running", reason=""), epoch=4), history)
    assert (newer.state, newer.epoch) == (RunState.RUNNING, 4)


def test_a_roll_back_stays_until_a_generation_has_resumed_under_it() -> None:
    history = fold(_events(*START, ev.BoundsSet(min_step=1, max_step=20, reason="nan")))
    assert (
        fold(_events(ev.GenerationIntended(attempt=1, generation=2, members=(), reason="")), history).max_step
        == 20
    )
    assert fold(_events(ev.GenerationResumed(attempt=1, generation=2, step=20)), history).max_step == -1
    # A generation that had started before the order resumed past it: the order still stands.
    assert fold(_events(ev.GenerationResumed(attempt=1, generation=2, step=30)), history).max_step == 20


def _alert(number: int) -> ev.AlertQueued:
    return ev.AlertQueued(id=str(number), key="crash", severity="warning", title={}, text={})


def test_the_outbox_keeps_what_was_not_answered_and_drops_what_was() -> None:
    history = fold(_events(_alert(1), ev.AlertTried(id="1")))
    assert history.outbox["1"].unanswered
    retried = fold(_events(ev.AlertFailed(id="1", errcode=45009, reason="", permanent=False)), history)
    assert not retried.outbox["1"].unanswered
    assert (retried.alerts_sent, retried.alerts_failed) == (0, 0)
    sent = fold(_events(ev.AlertTried(id="1"), ev.AlertDelivered(id="1"), ev.AlertDelivered(id="1")), retried)
    assert (dict(sent.outbox), sent.alerts_sent) == ({}, 1)
    dropped = fold(_events(ev.AlertFailed(id="1", errcode=93000, reason="", permanent=True)), retried)
    assert (dict(dropped.outbox), dropped.alerts_failed) == ({}, 1)


def test_a_robot_that_is_down_for_days_does_not_grow_the_fold() -> None:
    history = fold(_events(*(_alert(number) for number in range(500))))
    assert len(history.outbox) == 200
    assert history.alerts_failed == 300


def test_resuming_gives_a_new_budget_and_lets_alerts_speak_again() -> None:
    history = fold(_events(*START, _judged(), _alert(1), ev.StateChanged(state="failed", reason="")))
    assert history.open_keys
    again = fold(_events(ev.StateChanged(state="pending", reason="resumed")), history)
    assert (again.failures, again.open_keys, again.state) == ((), frozenset(), RunState.PENDING)


def test_every_kind_survives_the_round_trip_and_folds() -> None:
    """A new kind of event cannot be forgotten in the codec."""
    samples = {
        int: 1, str: "x", bool: True, float: 1.5,
    }  # fmt: skip
    for kind in KINDS.values():
        values = {}
        for item in fields(kind):
            values[item.name] = samples.get(item.type, () if "tuple" in str(item.type) else {})
        event = ev.Event(seq=1, time=1.0, epoch=1, body=kind(**values))
        assert decode(encode(event)) == event
        fold([event], History())


def test_what_was_seen_of_a_failure_stays_in_the_journal() -> None:
    """For `replay`. In memory it would pile up over weeks, a few kilobytes for each failure."""
    seen = ev.Judged(
        attempt=1,
        generation=1,
        verdict="crashed",
        cause="traceback",
        reason="x",
        step=3,
        signature="s",
        observation={"nodes": [1] * 1000},
        limits={"phase": "forward"},
    )
    noticed = ev.Noticed(**{**vars(seen), "verdict": "slow", "cause": "slow"})
    bodies = (ev.AttemptIntended(attempt=1, tag="t", reason="r"), seen, noticed)
    history = fold([ev.Event(seq=n, time=1.0, epoch=0, body=body) for n, body in enumerate(bodies, 1)])
    kept = (
        history.failures[0].verdict,
        history.attempts[0].generations[0].failure,
        history.notices["slow"].seen,
    )
    assert [dict(item.observation) for item in kept] == [{}, {}, {}]
    assert kept[0].limits == {"phase": "forward"}
