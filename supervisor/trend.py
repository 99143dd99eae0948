"""The newest steps of a run in a line of text: what `status RUN` shows of its curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.layout import RunDir, parse_metrics_name
from contract.metrics import row_of

_TAIL = 64 << 10  # bytes of the newest file
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 40


@dataclass(frozen=True, kw_only=True)
class Trend:
    """The newest steps of the newest generation that wrote any, in order."""

    first: int
    last: int
    loss: tuple[float, ...]
    tokens_per_s: tuple[float, ...]


def read_trend(run: RunDir) -> Trend | None:
    """None while there are no metrics. Costs one read of the end of one file."""
    found = sorted(
        (writer, path) for path in run.metrics.glob("*.jsonl") if (writer := parse_metrics_name(path.name))
    )
    for _, path in reversed(found):
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            rows = [row for line in file.read().split(b"\n") if (row := row_of(line)) is not None]
        if rows:
            return Trend(
                first=rows[0]["step"],
                last=rows[-1]["step"],
                loss=_numbers(rows, "loss"),
                tokens_per_s=_numbers(rows, "tokens_per_s"),
            )
    return None


def sparkline(values: Sequence[float], columns: int = _COLUMNS) -> str:
    """The values as bars, the greatest of each column, so that a spike stays; "" for none."""
    if not values:
        return ""
    count = min(columns, len(values))
    shown = [max(values[len(values) * at // count : len(values) * (at + 1) // count]) for at in range(count)]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in shown)


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    found = (row.get(name) for row in rows)
    return tuple(float(value) for value in found if isinstance(value, int | float) and math.isfinite(value))
