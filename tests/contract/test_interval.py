"""How often to save: the formula against its own definition, and what a journal says of a run's failures."""

import math

import pytest

from contract import events as ev
from contract.fold import fold
from contract.interval import Failures, best_interval, failures_of


@pytest.mark.parametrize(("mtbf", "stall"), [(3600.0, 1.0), (86_400.0, 60.0), (600.0, 120.0), (100.0, 1e-3)])
def test_no_other_interval_loses_less(mtbf: float, stall: float) -> None:
    def useful(interval: float) -> float:
        return interval / (mtbf * math.expm1((interval + stall) / mtbf))

    best = best_interval(mtbf, stall)
    assert useful(best) >= max(useful(best * factor) for factor in (0.9, 0.99, 1.01, 1.1))
    if stall < mtbf / 100:
        assert best == pytest.approx(math.sqrt(2 * stall * mtbf), rel=0.05), "Young's first order"


def test_without_failures_never_and_without_cost_always() -> None:
    assert best_interval(math.inf, 1.0) == math.inf
    assert best_interval(3600.0, 0.0) == 0.0


def test_expectation_gives_way_to_history() -> None:
    assert Failures().mtbf_s(1000.0) == 1000.0
    assert Failures(count=9, trained_s=9000.0).mtbf_s(1000.0) == 1000.0
    assert Failures(count=99, trained_s=9900.0).mtbf_s(100_000.0) == pytest.approx(1099.0)
    assert Failures(count=0, trained_s=50_000.0).mtbf_s(1000.0) == 51_000.0, "no failure for long is news too"


def _fold(*timed: tuple[float, ev.Body]) -> Failures:
    found = [
        ev.Event(seq=number, time=at, epoch=1, body=body) for number, (at, body) in enumerate(timed, start=1)
    ]
    return failures_of(fold(found))


def _judged(generation: int, cause: str, attempt: int = 1) -> ev.Judged:
    return ev.Judged(
        attempt=attempt,
        generation=generation,
        verdict="crashed",
        cause=cause,
        reason="",
        step=1,
        signature="",
    )


def _resumed(generation: int, attempt: int = 1) -> ev.GenerationResumed:
    return ev.GenerationResumed(attempt=attempt, generation=generation, step=0)


def test_a_journal_is_read_as_trained_time_and_failures() -> None:
    begun = ev.AttemptIntended(attempt=1, tag="t", reason="")
    assert _fold((0.0, begun)) == Failures()
    found = _fold(
        (0.0, begun),
        (100.0, _resumed(1)),
        (400.0, _judged(1, "signal")),  # 300 s
        (410.0, ev.GenerationIntended(attempt=1, generation=2, members=(), reason="")),
        (420.0, _resumed(2)),
        (920.0, _judged(2, "time-limit")),  # 500 s; it saved first
        (930.0, ev.AttemptEnded(attempt=1, job_state="ended-limit", reason="")),
        (940.0, ev.AttemptIntended(attempt=2, tag="t", reason="")),
        (5000.0, _resumed(1, attempt=2)),  # the queue's time is no training
    )
    assert found == Failures(count=1, trained_s=800.0)
