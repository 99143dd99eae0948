"""The run's own curve, from its metrics: pace, loss and gradient norm. A fold over rows, bounded in memory.

Robust statistics (median and MAD), so that a save, an evaluation, a stall or a bad batch now and then moves nothing.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ROWS = 160  # steps whose numbers are kept
_LEAST_ROWS = 48  # before them there is no curve to leave
_NEWEST = 8  # steps that may be a spike and do not count as usual
_BLOCKS = 512
_LEAST_BLOCKS = 8
_BLOCK_ROWS, _BLOCK_S = 8, 10.0
_WARM_ROWS = 5  # the first steps of a generation are slower: caches, compilation
_SAME_PLAN = 0.2  # a step with this much more or fewer tokens is another kind of step
_SIGMA = 1.4826  # MAD of a normal distribution → its standard deviation
_LEAST_SPREAD = 0.01  # of the median: a curve without scatter would call everything a spike
_CHANGES = 32  # of the batch plan; more than a controller makes between two looks
_NORM_FACTOR = 5.0  # gradient norms scatter by nature


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step as the metrics tell it. NaN: not told, or not finite (then `broken`). `start`, `end`: sampler positions, -1 unknown."""

    attempt: int
    generation: int
    step: int
    loss: float = math.nan
    norm: float = math.nan
    seconds: float = math.nan
    tokens: float = math.nan
    start: int = -1
    end: int = -1
    broken: bool = False
    dropped: bool = False
    scale: float = math.nan
    plan: tuple[Any, ...] = ()
    change: str = ""  # why the batch plan changed at this step


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the batch plan at this step, with the trainer's reason."""

    attempt: int
    generation: int
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds a step: the run's usual, its robust standard deviation, and lately (since step `since`)."""

    usual_s: float
    spread_s: float
    recent_s: float
    recent_for_s: float
    since: int
    tokens: float


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The newest steps against the run's own curve. Counts are of steps in a row up to the newest one.

    `spiking`: loss or norm beyond its limit; `last_good`: the step before the first of them, `start` and `end` the
    sampler positions of them all (-1: not told). `loss`, `norm`: medians of the newest steps.
    """

    loss: float
    loss_usual: float
    loss_limit: float
    norm: float
    norm_usual: float
    norm_limit: float
    spiking: int = 0
    by_norm: bool = False
    not_finite: int = 0
    dropped: int = 0  # of the last 64 steps
    at_minimum: int = 0  # the loss scale
    last_good: int = -1
    start: int = -1
    end: int = -1


@dataclass(frozen=True, kw_only=True)
class CurveLook:
    """What the metrics say now. The newest row is of this generation and step. `changes`: the newest, oldest first.

    `tokens_per_s`: median of the newest steps, NaN where the metrics do not tell.
    """

    attempt: int
    generation: int
    step: int
    pace: Pace | None = None
    numbers: Numbers | None = None
    changes: tuple[Change, ...] = ()
    tokens_per_s: float = math.nan


def row_from(value: Mapping[str, Any], at: tuple[int, int]) -> Row:
    """The row in this line of metrics. Programs of another make may leave out what they do not know."""
    positions = value.get("positions")
    told = isinstance(positions, list) and len(positions) == 2
    seconds = _number(value.get("step_s"))
    return Row(
        attempt=at[0],
        generation=at[1],
        step=int(value["step"]),
        loss=_number(value.get("loss")),
        norm=_number(value.get("grad_norm")),
        seconds=seconds,
        tokens=_number(value.get("tokens_per_s")) * seconds,
        start=int(positions[0]) if told and positions else -1,
        end=int(positions[1]) if told and positions else -1,
        broken="loss" in value and math.isnan(_number(value["loss"])),
        dropped="dropped" in value,
        scale=_number(value.get("loss_scale")),
        plan=tuple(value.get(key) for key in ("global_batch", "micro_steps")),
        change=str(value.get("batch_change", "")),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A few steps of one generation: their median time, and how long they took together."""

    at: tuple[int, int]
    first_step: int
    seconds: float
    length_s: float


class Curve:
    """The fold. `add` takes rows in the order in which they were written."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=_ROWS)
        self._blocks: deque[_Block] = deque(maxlen=_BLOCKS)
        self._open: list[Row] = []
        self._plan: tuple[Any, ...] = ()
        self._tokens = math.nan
        self._cold = _WARM_ROWS
        self._changes: deque[Change] = deque(maxlen=_CHANGES)

    def add(self, row: Row) -> None:
        """One more step. Of a step that two generations have, the later one counts."""
        if self._rows and (row.attempt, row.generation) != (
            self._rows[-1].attempt,
            self._rows[-1].generation,
        ):
            self._open, self._cold = [], _WARM_ROWS
        while self._rows and self._rows[-1].step >= row.step:
            self._rows.pop()
        self._rows.append(row)
        if row.change:
            change = Change(attempt=row.attempt, generation=row.generation, step=row.step, reason=row.change)
            self._changes.append(change)
        self._add_pace(row)

    def _add_pace(self, row: Row) -> None:
        if self._cold:
            self._cold -= 1
            return
        if math.isnan(row.seconds):
            return
        if row.plan != self._plan or abs(row.tokens / self._tokens - 1) > _SAME_PLAN:
            self._blocks.clear()
            self._open, self._plan = [], row.plan
        if not self._open and not self._blocks:
            self._tokens = row.tokens
        self._open.append(row)
        length = sum(item.seconds for item in self._open)
        if len(self._open) >= _BLOCK_ROWS and length >= _BLOCK_S:
            middle = statistics.median(item.seconds for item in self._open)
            self._blocks.append(
                _Block(
                    at=(row.attempt, row.generation),
                    first_step=self._open[0].step,
                    seconds=middle,
                    length_s=length,
                )
            )
            self._open = []

    def look(self, *, slow_s: float, sigma: float, least_scale: float) -> CurveLook | None:
        """What the rows so far say; None before the first.

        `slow_s`: over how much of the newest training time "lately" reaches; `sigma`: robust standard deviations
        that make a spike; `least_scale`: the smallest loss scale.
        """
        if not self._rows:
            return None
        newest = self._rows[-1]
        return CurveLook(
            attempt=newest.attempt,
            generation=newest.generation,
            step=newest.step,
            pace=self._pace((newest.attempt, newest.generation), slow_s),
            numbers=_numbers(self._rows, sigma, least_scale),
            changes=tuple(self._changes),
            tokens_per_s=_median(
                [row.tokens / row.seconds for row in list(self._rows)[-_NEWEST:] if row.seconds > 0]
            ),
        )

    def _pace(self, at: tuple[int, int], slow_s: float) -> Pace | None:
        lately: list[_Block] = []
        length = 0.0
        for block in reversed(self._blocks):
            if length >= slow_s or block.at != at:
                break
            lately.append(block)
            length += block.length_s
        before = [block.seconds for block in self._blocks][: len(self._blocks) - len(lately)]
        if length < slow_s or len(before) < _LEAST_BLOCKS:
            return None
        usual, spread = _robust(before)
        return Pace(
            usual_s=usual,
            spread_s=spread,
            recent_s=statistics.median(block.seconds for block in lately),
            recent_for_s=length,
            since=lately[-1].first_step,
            tokens=self._tokens,
        )


def _numbers(rows: Sequence[Row], sigma: float, least_scale: float) -> Numbers:
    newest = list(rows)[-_NEWEST:]
    before = [row for row in list(rows)[:-_NEWEST] if not row.dropped]
    loss_usual, loss_limit = _limit([row.loss for row in before if math.isfinite(row.loss)], sigma)
    norm_usual, norm_limit = _norm_limit([row.norm for row in before if row.norm > 0], sigma)
    back = list(reversed(rows))
    spike = _in_a_row(back, lambda row: row.loss > loss_limit or row.norm > norm_limit or row.dropped)
    while spike and spike[-1].dropped:  # a dropped step is no sign by itself
        spike.pop()
    spiking = sum(not row.dropped for row in spike)
    broken = _in_a_row(back, lambda row: row.broken and not row.dropped)
    bad = broken or spike
    return Numbers(
        loss=_median([row.loss for row in newest]),
        loss_usual=loss_usual,
        loss_limit=loss_limit,
        norm=_median([row.norm for row in newest]),
        norm_usual=norm_usual,
        norm_limit=norm_limit,
        spiking=spiking,
        by_norm=bool(spike) and not any(row.loss > loss_limit for row in spike),
        not_finite=len(broken),
        dropped=sum(row.dropped for row in back[:64]),
        at_minimum=len(_in_a_row(back, lambda row: row.scale <= least_scale)),
        last_good=bad[-1].step - 1 if bad else -1,
        start=bad[-1].start if bad else -1,
        end=bad[0].end if bad else -1,
    )


def _in_a_row(back: Sequence[Row], bad: Any) -> list[Row]:
    """The newest rows for which this holds, newest first."""
    found: list[Row] = []
    for row in back:
        if not bad(row):
            break
        found.append(row)
    return found


def _limit(values: list[float], sigma: float) -> tuple[float, float]:
    """Median, and where a spike begins; infinite while there is too little to tell."""
    if len(values) < _LEAST_ROWS:
        return math.inf, math.inf
    usual, spread = _robust(values)
    return usual, usual + sigma * max(spread, _LEAST_SPREAD * abs(usual))


def _norm_limit(values: list[float], sigma: float) -> tuple[float, float]:
    """The same on a logarithmic scale, and never less than some times the median."""
    usual, limit = _limit([math.log(value) for value in values], sigma)
    if math.isinf(usual):
        return math.inf, math.inf
    return math.exp(usual), max(_NORM_FACTOR * math.exp(usual), math.exp(min(limit, 700.0)))


def _robust(values: list[float]) -> tuple[float, float]:
    """Median and robust standard deviation (1.4826 times the median absolute deviation)."""
    middle = statistics.median(values)
    return middle, _SIGMA * statistics.median(abs(value - middle) for value in values)


def _median(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan
