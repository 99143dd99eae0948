"""How long to train between two saves: what a save costs against what a failure loses. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from contract.history import AttemptHistory, History
from contract.states import Cause

# Ends that save first: they lose nothing that a shorter interval would have kept.
_SAVED_FIRST = frozenset({Cause.TIME_LIMIT, Cause.PREEMPTED, Cause.CANCELLED})


def best_interval(mtbf: float, stall: float) -> float:
    """The productive time between two saves that loses least, in the unit of the arguments.

    With exponential failures (M: mean time between them) and a standstill of w for each save the share of useful time
    is Δ/(M·(e^((Δ+w)/M) - 1)), largest at Δ = M·(1+W0(-e^(-1-w/M))). Its first order is √(2wM): J. W. Young, A first
    order approximation to the optimum checkpoint interval, CACM 17 (1974); the series after that is J. T. Daly's, A
    higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006). What a restart takes
    does not matter.

    With y = Δ/M the condition is y = 1 - e^(-y-w/M), solved by Newton from Young's value.
    """
    if stall <= 0 or math.isinf(mtbf):
        return math.inf if math.isinf(mtbf) else 0.0
    ratio = stall / mtbf
    found = math.sqrt(2 * ratio)
    for _ in range(60):
        rest = math.exp(-found - ratio)
        step = (found - 1 + rest) / (1 - rest)
        found -= step
        if abs(step) < 1e-13:
            break
    return mtbf * found


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How often a run has failed: `count` failures in `trained_s` seconds of training."""

    count: int = 0
    trained_s: float = 0.0

    def mtbf_s(self, expected_s: float) -> float:
        """Mean seconds of training between two failures.

        Before there is much history it is mostly `expected_s`, which counts as one failure after so long a time (the
        mean of a Gamma distribution of the rate with that prior).
        """
        return (self.trained_s + expected_s) / (self.count + 1)


def failures_of(history: History) -> Failures:
    """What the journal tells. Only the journal's own times are compared."""
    count, trained = 0, 0.0
    last = _last_time(history.attempts)
    for attempt in history.attempts:
        for number, generation in enumerate(attempt.generations):
            if generation.failure is not None and generation.failure.cause not in _SAVED_FIRST:
                count += 1
            if generation.resumed_at is None:
                continue
            later = attempt.generations[number + 1 : number + 2]
            ends = (generation.failed_at, *(item.intended_at for item in later), attempt.ended_at, last)
            trained += max(0.0, next(end for end in ends if end is not None) - generation.resumed_at)
    return Failures(count=count, trained_s=trained)


def _last_time(attempts: Iterable[AttemptHistory]) -> float:
    """The newest time that any attempt or generation of the history knows."""
    times = [
        at
        for attempt in attempts
        for at in (
            attempt.intended_at,
            attempt.ended_at,
            *(
                at
                for item in attempt.generations
                for at in (item.intended_at, item.went_at, item.resumed_at, item.failed_at)
            ),
        )
        if at is not None
    ]
    return max(times, default=0.0)
