"""Writes the learning rate of each group before each step. No scheduler object: config and progress decide alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from contract.schedule import Course, Pace, annealed_at, pace_after
from trainer.groups import Group


class Rates:
    """The rates of one run. The only state is how far adaptive annealing has come; checkpoints keep it."""

    def __init__(self, course: Course, groups: Sequence[Group]) -> None:
        self._course = course
        self._positions = [group.rate for group in groups]
        self._pace = Pace()

    def write(self, engine: Any, tokens: int, factor: float = 1.0) -> tuple[float, float]:
        """Set the rates of the step after which `tokens` are consumed; returns the first and the last group's.

        `factor` multiplies them all: what a grown batch does to them.
        """
        course = self._course.rates(tokens, annealed_at(self._pace, self._course, tokens))
        rates = [rate * factor for rate in course]
        for group, position in zip(engine.optimizer.param_groups, self._positions, strict=True):
            group["lr"] = rates[position]
        return rates[0], rates[-1]

    def observe(self, tokens: int, loss: float) -> None:
        """A step that ended at `tokens` had this loss: finite, and agreed by all ranks."""
        self._pace = pace_after(self._pace, self._course, tokens=tokens, loss=loss)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return asdict(self._pace)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; nothing: from a checkpoint that knew no such state."""
        self._pace = Pace(**state) if state else Pace()
