"""Scenarios in the terms of the closed forms: minutes, one node, a supervisor that never gives up."""

import math
import random

from supervisor.simulate.results import Result, simulate
from supervisor.simulate.scenario import Scenario

# No budgets, no back-off, no time limit: what closed forms know nothing of.
PATIENT = {
    "supervisor": {"max_failures": 1000, "in_place_limit": 1000, "backoff_s": 0.0},
    "job": {"time_limit_min": 10**9},
}


def stratified(mean_min: float, count: int, shape: float = 1.0) -> tuple[float, ...]:
    """Running times (s) between failures at evenly spaced quantiles, shuffled: a sample without sampling error."""
    shares = ((number + 0.5) / count for number in range(count))
    values = [(-math.log1p(-share)) ** (1 / shape) for share in shares]
    factor = mean_min * 60 * count / sum(values)
    random.Random(7).shuffle(values)
    return tuple(value * factor for value in values)


def run(
    mtbf: float,
    dead: float | str,
    interval: float,
    stall: float = 0.0,
    lag: float = 0.0,
    *,
    shape: float = 1.0,
    count: int = 400,
    **more,
) -> Result:
    """The simulation of a row; minutes, `dead` also as a law in seconds."""
    told = {
        "days": 3650,
        "nodes": 1,
        "gaps": stratified(mtbf, count, shape),
        "interval": interval * 60,
        "checkpoint_cost": stall * 60,
        "checkpoint_lag": lag * 60,
        "detect": {"crash": dead if isinstance(dead, str) else dead * 60},
        "restart": 0,
        "load": 0,
        "policy": PATIENT,
        **more,
    }
    return simulate(Scenario.model_validate(told), replicas=1, seed=3)
