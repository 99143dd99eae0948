"""When a save is due, with a clock of the test's own."""

import pytest

from contract.config.checkpoint import Checkpoint
from contract.interval import Failures, best_interval
from trainer.cadence import Cadence


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def cadence(clock, failures=Failures(), **settings):  # noqa: B008 - frozen
    return Cadence(Checkpoint(**settings), failures, clock=clock)


def test_by_steps_alone_the_clock_does_not_matter():
    clock = Clock()
    found = cadence(clock, interval_steps=5)
    clock.now = 1e9
    assert not found.due()
    assert [step for step in range(1, 12) if found.due_at(step)] == [5, 10]


def test_by_minutes_only_rank_0_asks():
    clock = Clock()
    first, second = cadence(clock, interval_minutes=2.0), cadence(clock, failures=None, interval_minutes=2.0)
    assert not any(first.due_at(step) for step in range(1, 50))
    clock.now = 119.0
    assert not first.due()
    clock.now = 120.0
    assert first.due()
    assert not second.due()
    first.saved(0.5)
    assert not first.due()


def test_a_save_that_was_left_out_is_due_again_after_the_whole_interval():
    clock = Clock()
    found = cadence(clock, interval_minutes=1.0)
    clock.now = 60.0
    found.saved(None)
    clock.now = 119.0
    assert not found.due()


def test_by_itself_from_cost_and_failures():
    clock = Clock()
    found = cadence(
        clock,
        Failures(count=9, trained_s=36_000.0),
        mtbf_hours=1.0,
        auto_least_minutes=1.0,
        auto_most_minutes=60.0,
    )
    assert found.interval_s() == 60.0, "the first save comes soon: it tells what one costs"
    for cost in (9.0, 2.0, 2.0):  # the first of a generation takes memory: no typical one
        found.saved(cost)
    assert found.mtbf_s() == pytest.approx(3960.0)
    assert found.interval_s() == pytest.approx(best_interval(3960.0, 2.0))
    clock.now = 400_000.0  # for days without a failure
    assert found.interval_s() > 2 * best_interval(3960.0, 2.0)


@pytest.mark.parametrize(("cost", "minutes"), [(1e-4, 2.0), (3600.0, 60.0)])
def test_by_itself_within_bounds(cost, minutes):
    found = cadence(Clock())
    found.saved(cost)
    assert found.interval_s() == minutes * 60


def test_the_newest_loss_on_held_out_data_goes_with_the_next_save_only():
    found = cadence(Clock(), interval_steps=1)
    found.evaluated(2.0)
    found.evaluated(None)
    assert found.val_loss == 2.0
    found.saved(0.1)
    assert found.val_loss is None
