"""What becomes of a step whose numbers are not to be trusted. Pure but for its memory, which checkpoints keep."""

import logging
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from contract.config.numerics import Numerics
from contract.sampling import Taken
from trainer.errors import NumericsError

log = logging.getLogger(__name__)

# A dynamic loss scale starts high and is halved at each overflow: so many dropped steps in a row are its search.
_SCALE_SEARCH = 40


class FaultKind(Enum):
    """What was wrong with a step."""

    NOT_FINITE = auto()
    SCALING = auto()  # the loss scale made the gradient too large: DeepSpeed looks for a smaller one
    SPIKE = auto()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why a step was not applied, agreed by all ranks."""

    kind: FaultKind
    text: str


class Guard:
    """Counts dropped steps and knows the usual gradient norm. The same on all ranks."""

    def __init__(self, wanted: Numerics) -> None:
        self._wanted = wanted
        self._norms: deque[float] = deque(maxlen=wanted.spike_window)
        self._in_a_row = 0
        self._dropped = 0
        self._first = 0  # where the first of the dropped steps in a row took its data

    def norm_limit(self) -> float:
        """The gradient norm from which a step is dropped; infinite when there is none (yet)."""
        enough = len(self._norms) * 4 >= self._wanted.spike_window
        if not self._wanted.spike_factor or not enough:
            return float("inf")
        return self._wanted.spike_factor * statistics.median(self._norms)

    def accept(self, norm: float) -> None:
        """A step was applied."""
        self._in_a_row = 0
        if self._wanted.spike_factor:
            self._norms.append(norm)

    def drop(self, fault: Fault, taken: Taken, *, step: int) -> None:
        """A step was not applied; `step` have been done before it. Returns when training may go on.

        Raises:
            NumericsError: the policy ends it here. The text names the data that the supervisor may jump.
        """
        if not self._in_a_row:
            self._first = taken.start
        self._in_a_row += 1
        self._dropped += 1
        if fault.kind is FaultKind.NOT_FINITE and self._wanted.on_nan in {"roll-back", "stop"}:
            raise NumericsError(where(fault.text, step, taken.start, taken.end))
        searching = fault.kind is FaultKind.SCALING
        if self._in_a_row >= (
            max(self._wanted.skip_limit, _SCALE_SEARCH) if searching else self._wanted.skip_limit
        ):
            told = f"{self._in_a_row} steps in a row were dropped, the last because {fault.text}"
            raise NumericsError(where(told, step, self._first, taken.end))
        log.warning("%s; its update is dropped", where(fault.text, step, taken.start, taken.end))

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {
            "norms": list(self._norms),
            "in_a_row": self._in_a_row,
            "dropped": self._dropped,
            "first": self._first,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; empty: from the beginning."""
        self._norms.clear()
        self._norms.extend(state.get("norms", ()))
        self._in_a_row, self._dropped = state.get("in_a_row", 0), state.get("dropped", 0)
        self._first = state.get("first", 0)


def where(what: str, step: int, start: int, end: int) -> str:
    """The sentence that the supervisor reads the positions from."""
    return f"{what} at step {step + 1}, sampler positions [{start}, {end})"
