"""The storm guard: when restarts are spread, tried by enumeration, and a storm of fifty runs played to its end."""

import itertools
from dataclasses import replace

import pytest

from contract import events as ev
from contract.config.supervision import Supervisor
from contract.fold import fold
from contract.states import Cause
from supervisor.core import storm
from supervisor.core.actions import Prepare, Wait
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import Neighbour
from tests.supervisor.core.make import NOW, events, failure, history, seen
from tests.supervisor.core.world import small_config

POLICY = Supervisor(storm_runs=5, storm_window_s=120.0, storm_at_once=2)


def other(
    number: int, cause: str = "network", at: float = NOW, restarting_s: float | None = None
) -> Neighbour:
    return Neighbour(run=f"r-{number}", cause=cause, failed_at=at, restarting_s=restarting_s)


MINE = other(0, at=NOW)
LATER = NOW + 60  # every spread restart is due by then: 5 s a run, two at once


@pytest.mark.parametrize("cause", list(Cause))
def test_only_shared_causes_are_spread(cause: Cause) -> None:
    mine = replace(MINE, cause=cause)
    others = [other(number, cause) for number in range(1, 20)]
    held = storm.hold(mine, others, POLICY, NOW)
    assert (held is not None) is (cause in storm.SHARED)
    own = {Cause.CONFIG, Cause.TRACEBACK, Cause.NAN, Cause.GPU_OOM, Cause.DISK_FULL, Cause.TIME_LIMIT}
    assert not own & storm.SHARED


@pytest.mark.parametrize("runs", range(1, 12))
@pytest.mark.parametrize("busy", range(4))
@pytest.mark.parametrize("apart", [0.0, 119.0, 121.0])
@pytest.mark.parametrize("elapsed", [0.0, 60.0])
def test_who_waits_is_what_the_rule_says(runs: int, busy: int, apart: float, elapsed: float) -> None:
    others = [
        other(number, at=NOW - apart, restarting_s=1.0 if number <= busy else None)
        for number in range(1, runs)
    ]
    held = storm.hold(MINE, others, POLICY, NOW + elapsed)
    together = (runs if apart <= 120 else 1) >= 5
    full = sum(item.restarting_s is not None for item in others) >= 2
    spread_over = elapsed >= 60
    assert (held is not None) is (together and (full or not spread_over))
    if held is not None:
        assert held.until > NOW + elapsed
        assert held.reason.startswith(f"several runs fail together: {runs} within 120 s")
        assert f"network {runs}" in held.reason


def test_a_restart_that_hangs_in_the_queue_frees_its_place() -> None:
    slow = [other(number, restarting_s=121.0) for number in range(1, 9)]
    assert storm.hold(MINE, slow, POLICY, LATER) is None
    assert (
        storm.hold(MINE, [other(number, restarting_s=5.0) for number in range(1, 9)], POLICY, LATER)
        is not None
    )


def test_it_can_be_switched_off_and_an_old_failure_of_another_clock_waits_for_nothing() -> None:
    others = [other(number) for number in range(1, 9)]
    assert storm.hold(MINE, others, Supervisor(storm_runs=0), NOW) is None
    future = replace(MINE, failed_at=NOW + 50)
    held = storm.hold(future, [replace(item, failed_at=NOW + 50) for item in others], POLICY, NOW)
    assert held is None


def test_a_storm_of_fifty_is_spread_with_never_more_than_allowed_at_once_and_everybody_gets_a_turn() -> None:
    """Each restart takes ten seconds. Decisions are taken run by run, as a supervisor does."""
    waiting = {number: other(number, at=NOW + number % 7) for number in range(50)}
    began: dict[int, float] = {}
    now = NOW + 7
    for now in itertools.count(int(NOW + 7)):
        for number in list(waiting):
            others = [
                replace(
                    item, restarting_s=now - began[name] if name in began and now - began[name] < 10 else None
                )
                for name, item in ((name, other(name, at=NOW + name % 7)) for name in range(50))
                if name != number
            ]
            if storm.hold(waiting[number], others, POLICY, now) is None:
                began[number] = now
                del waiting[number]
        assert sum(now - at < 10 for at in began.values()) <= 2
        if not waiting:
            break
        assert now < NOW + 600
    assert now - NOW >= 230  # 50 restarts of 10 s, two at once


def test_the_decision_waits_with_the_reason_and_goes_when_its_turn_has_come() -> None:
    config = small_config(supervisor={"storm_runs": 5, "storm_at_once": 2})
    told = history(failure(cause="network", signature="", verdict="crashed", reason="network is down"))
    crowd = tuple(other(number, at=told.open_failure.at, restarting_s=1.0) for number in range(1, 9))
    now = told.open_failure.at + 100

    def answer(*neighbours: Neighbour):
        observation = seen(neighbours=neighbours)
        return decide(told, observation, judge(observation, told, config, now), config, now)

    assert not any(isinstance(action, Prepare) for action in answer(*crowd))
    (wait,) = [action for action in answer(*crowd) if isinstance(action, Wait)]
    assert "at most 2 at once" in wait.reason
    assert any(isinstance(action, Prepare) for action in answer())
    assert any(isinstance(action, Prepare) for action in answer(*crowd[:3]))


def test_a_neighbour_is_read_from_the_journal_alone() -> None:
    assert storm.neighbour(history(), NOW) is None
    failed = history(failure(cause="network"))
    assert storm.neighbour(failed, NOW).restarting_s is None
    ordered = fold(
        events(ev.GenerationIntended(attempt=1, generation=2, members=("n0",), reason=""), at=NOW - 31),
        failed,
    )
    found = storm.neighbour(ordered, NOW)
    assert (found.run, found.cause, found.restarting_s) == ("r", "network", 30.0)
    back = ev.Recovered(
        attempt=1,
        generation=2,
        step=9,
        failed_attempt=1,
        failed_generation=1,
        detect_s=1,
        restart_s=1,
        repeated_steps=0,
    )
    assert storm.neighbour(fold(events(back, at=NOW), ordered), NOW).restarting_s is None
