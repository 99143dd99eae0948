"""How long the passes of a step took on this rank's device."""

import time
from typing import Any

import torch


class Clock:
    """Called around each pass; on a CPU the passes are done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Before a forward pass, after it, and after the backward pass."""
        self._marks.append(time.perf_counter())

    def take(self) -> tuple[float, float]:
        """(seconds in forward passes, seconds in both) since the last call."""
        marks, self._marks = self._marks, []
        triples = list(zip(marks[::3], marks[1::3], marks[2::3], strict=False))
        forward = sum(self._between(start, half) for start, half, _ in triples)
        return forward, forward + sum(self._between(half, end) for _, half, end in triples)

    def _between(self, start: Any, end: Any) -> float:
        return float(end - start)


class CudaClock(Clock):
    """The same on the device's own time line, without waiting for it in mid-step."""

    def mark(self) -> None:
        """As in `Clock`."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def _between(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000


class NoClock(Clock):
    """Nobody asks."""

    def mark(self) -> None:
        """Nothing."""


def clock_for(device: torch.device, *, wanted: bool) -> Clock:
    """The clock for this device, or one that costs nothing."""
    if not wanted:
        return NoClock()
    return CudaClock() if device.type == "cuda" else Clock()
