"""The learning-rate curves of a recipe, drawn with Braille dots for a terminal."""

import shutil
from collections.abc import Sequence
from typing import Any

from contract.config import RunConfig

# What bends the curves. A recipe can be drawn before its data is there and whatever else is wrong with it.
NEEDED = frozenset({"file", "run", "schedule", "model", "batch", "optimizer"})

_HEIGHT = 8
_MARGIN = 11  # the scale at the left
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # Braille dots by row and column of a cell


def drawn(config: RunConfig, curves: dict[str, Any]) -> tuple[str, list[str]]:
    """One small picture for the first group, one in the middle, and the last; and sentences on what is drawn."""
    tokens, groups = curves["tokens"], curves["groups"]
    width = max(30, min(100, shutil.get_terminal_size((90, 24)).columns - _MARGIN - 1))
    names = list(groups)
    picked = tuple(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))
    top = max(max(rates) for rates in groups.values()) or 1.0
    parts = [_picture(name, groups[name], tokens, top, width) for name in picked]
    schedule = config.schedule
    ways = [f"{schedule.kind}, {len(names)} groups, {tokens[-1]:,} tokens"]
    if schedule.adaptive_from:
        ways.append(
            f"from {schedule.adaptive_from * tokens[-1]:,.0f} tokens on the loss speeds annealing up or down "
            f"({schedule.adaptive_slowest:g} to {schedule.adaptive_fastest:g} times); drawn at its usual speed"
        )
    return "\n".join(parts), ways


def _picture(name: str, rates: Sequence[float], tokens: Sequence[int], top: float, width: int) -> str:
    columns, rows = width * 2, _HEIGHT * 4
    cells = [[0x2800] * width for _ in range(_HEIGHT)]
    span, before = tokens[-1] or 1, -1
    for column in range(columns):
        rate = _between(tokens, rates, span * column / (columns - 1))
        row = round((1 - rate / top) * (rows - 1))
        # A steep piece is drawn as a line, not as dots with gaps.
        for each in range(min(row, before if before >= 0 else row), max(row, before) + 1):
            cells[each // 4][column // 2] |= _DOTS[each % 4][column % 2]
        before = row
    scale = {0: top, _HEIGHT // 2: top / 2, _HEIGHT - 1: 0.0}
    lines = [
        f"{format(scale[row], '.3g') if row in scale else '':>{_MARGIN - 2}} ┤{''.join(map(chr, cells[row]))}"
        for row in range(_HEIGHT)
    ]
    axis = f"{'':>{_MARGIN - 2}} └{'─' * width}"
    ends = f"{'0':>{_MARGIN}}{f'{tokens[-1]:,} tokens':>{width}}"
    return "\n".join((f"{'':>{_MARGIN}}{name}", *lines, axis, ends, ""))


def _between(tokens: Sequence[int], rates: Sequence[float], at: float) -> float:
    """The rate at this many tokens, on the straight line between two samples."""
    for number in range(1, len(tokens)):
        if at <= tokens[number]:
            before, after = tokens[number - 1], tokens[number]
            share = (at - before) / (after - before)
            return rates[number - 1] + (rates[number] - rates[number - 1]) * share
    return rates[-1]
