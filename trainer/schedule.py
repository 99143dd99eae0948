"""The learning rate as a pure function of how far the run is."""

import math

from contract.config.schedule import Schedule


def rate(config: Schedule, *, peak: float, position: int, target: int) -> float:
    """Learning rate of the optimizer step that ends at `position`.

    Args:
        config: curve, warm-up and floor.
        peak: rate at the end of the warm-up.
        position: steps or tokens (the config's unit) done when this step is done; at least 1.
        target: the run's target in the same unit; where the annealing ends unless the config says otherwise.
    """
    if position < config.warmup:
        return peak * position / config.warmup
    if config.kind == "constant":
        return peak
    end = max(config.length or target, config.warmup + 1)
    share = min(1.0, (position - config.warmup) / (end - config.warmup))
    floor = peak * config.floor_ratio
    return floor + (peak - floor) * (1 + math.cos(math.pi * share)) / 2
