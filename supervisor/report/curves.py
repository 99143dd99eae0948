"""A run's metrics in so few points that a page can hold them, with every spike: least, greatest and mean of each bucket.

Buckets are powers of two of steps, so that one more step moves no other point.
"""

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.layout import RunDir, parse_metrics_name
from contract.manifest import read_resumes
from contract.metrics import row_of

QUANTITIES = (
    "loss",
    "val_loss",
    "grad_norm",
    "lr_embedding",
    "lr",
    "tokens_per_s",
    "step_s",
    "global_batch",
    "micro_steps",
)
_BUCKETS = 1024
_BLOCK = 1 << 20  # bytes read at once
_TAIL = 1 << 16
_CHANGES = 200
_NUMBERS = (float, int)
_Row = dict[str, Any]


@dataclass(kw_only=True)
class Point:
    """One bucket of one quantity."""

    low: float
    high: float
    total: float
    count: int

    @property
    def mean(self) -> float:
        return self.total / self.count

    def add(self, values: Sequence[float]) -> None:
        self.low, self.high = min(self.low, *values), max(self.high, *values)
        self.total, self.count = self.total + sum(values), self.count + len(values)


@dataclass(kw_only=True)
class Curves:
    """What the metrics say, bucket by bucket (its number times `width` is its first step).

    `undone`: losses of steps that a later generation did again. `broken`: buckets with a loss that was not finite.
    `changes`: (step, reason) of the newest changes of the batch plan. `rows` counts the steps of the lineage, `reached` is the last of them.
    """

    width: int
    points: dict[str, dict[int, Point]] = field(default_factory=lambda: {name: {} for name in QUANTITIES})
    undone: dict[int, Point] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)
    changes: list[tuple[int, str]] = field(default_factory=list)
    rows: int = 0
    reached: int = 0
    undone_rows: int = 0
    dropped: int = 0

    def add(self, rows: list[_Row], limit: float) -> None:
        """Rows of one generation in order of steps; those beyond `limit` were done again later."""
        steps = [row["step"] for row in rows]
        kept = bisect_right(steps, limit)
        self.rows += kept
        self.reached = max(self.reached, *steps[:kept][-1:], 0)
        self.undone_rows += len(rows) - kept
        for key, part in _buckets(rows[:kept], steps[:kept], self.width):
            self._take(key, part)
        for key, part in _buckets(rows[kept:], steps[kept:], self.width):
            _widen(self.undone, key, _values(part, "loss"))

    def join(self, other: "Curves") -> None:
        """Add what other rows came to, whose buckets are as wide as ours or narrower by a power of two."""
        narrower = self.width // other.width
        for name, points in other.points.items():
            _join(self.points[name], points, narrower)
        _join(self.undone, other.undone, narrower)
        for key, count in other.broken.items():
            self.broken[key // narrower] = self.broken.get(key // narrower, 0) + count
        self.changes = (self.changes + other.changes)[-_CHANGES:]
        self.rows, self.undone_rows = self.rows + other.rows, self.undone_rows + other.undone_rows
        self.reached, self.dropped = max(self.reached, other.reached), self.dropped + other.dropped

    def _take(self, key: int, part: list[_Row]) -> None:
        for name in QUANTITIES:
            _widen(self.points[name], key, _values(part, name))
        lost = sum("loss" in row for row in part) - len(_values(part, "loss"))
        if lost:
            self.broken[key] = self.broken.get(key, 0) + lost
        self.dropped += sum("dropped" in row for row in part)
        self.changes += [(row["step"], str(row["batch_change"])) for row in part if "batch_change" in row]
        del self.changes[:-_CHANGES]


def read_curves(run: RunDir) -> Curves:
    """Everything that the run's generations wrote; one pass over the files."""
    found = sorted(
        (writer, path) for path in run.metrics.glob("*.jsonl") if (writer := parse_metrics_name(path.name))
    )
    resumes = read_resumes(run)
    last = max((_last_step(path) for _, path in found), default=0)
    curves = Curves(width=width_of(last))
    for writer, path in found:
        limit = min((step for later, step in resumes.items() if later > writer), default=math.inf)
        for rows in _rows(path):
            curves.add(rows, limit)
    return curves


def width_of(last: int) -> int:
    """Steps in a bucket of a curve whose last step this is."""
    width = 1
    while last // width >= _BUCKETS:
        width *= 2
    return width


def _buckets(rows: list[_Row], steps: list[int], width: int) -> Iterator[tuple[int, list[_Row]]]:
    begin = 0
    while begin < len(rows):
        key = steps[begin] // width
        end = bisect_left(steps, (key + 1) * width, begin)
        yield key, rows[begin:end]
        begin = end


def _values(rows: list[_Row], name: str) -> list[float]:
    return [value for row in rows if (value := row.get(name)).__class__ in _NUMBERS and math.isfinite(value)]


def _widen(points: dict[int, Point], key: int, values: list[float]) -> None:
    if not values:
        return
    if key in points:
        points[key].add(values)
    else:
        points[key] = Point(low=min(values), high=max(values), total=sum(values), count=len(values))


def _join(points: dict[int, Point], more: dict[int, Point], narrower: int) -> None:
    for fine, other in more.items():
        key = fine // narrower
        mine = points.get(key)
        if mine is None:
            points[key] = Point(low=other.low, high=other.high, total=other.total, count=other.count)
            continue
        mine.low, mine.high = min(mine.low, other.low), max(mine.high, other.high)
        mine.total, mine.count = mine.total + other.total, mine.count + other.count


def _rows(path: Path) -> Iterator[list[_Row]]:
    """The file's rows, many at a time; a torn line is left out."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield parsed(lines)
    yield parsed([rest])


def parsed(lines: list[bytes]) -> list[_Row]:
    """All lines in one call of the parser, which is several times as fast; one by one if that fails."""
    lines = [line for line in lines if line]
    try:
        values = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        values = [row_of(line) for line in lines]
    rows = [row for row in values if row.__class__ is dict and row.get("step").__class__ is int]
    steps = [row["step"] for row in rows]
    return rows if steps == sorted(steps) else sorted(rows, key=lambda row: row["step"])


def _last_step(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL))
        rows = [row for line in file.read().split(b"\n") if (row := row_of(line)) is not None]
    return max((row["step"] for row in rows), default=0)
