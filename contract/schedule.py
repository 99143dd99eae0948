"""The learning rate as a pure function of consumed tokens. One module for the trainer and for the plot before a run.

Rates belong to groups of parameters: the embedding, and each layer. What comes after the last layer (final norm,
head) goes with it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from contract.config.schedule import Schedule
from contract.config.whole import RunConfig

EMBEDDING = "embedding"

# Share of the way from floor to peak at progress p of the annealing. `as_printed` is not here: it has no floor.
_FALLS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
        "quarter_cosine": lambda p: math.cos(math.pi * p / 2),
        "constant": lambda _: 1.0,
    }
)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The schedule of one run. `warmup` and `end` in tokens (a warm-up of a layer may end between two of them)."""

    schedule: Schedule
    peak: float
    layers: int
    warmup: int
    end: int

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, from the input to the output."""
        return (EMBEDDING, *(f"layer-{number}" for number in range(self.layers)))

    def warmup_of(self, group: int) -> float:
        """w_i = layer * warm-up / layers, in tokens."""
        layer = max(0, group - 1)  # the embedding goes with layer 0
        return self.warmup * layer / self.layers if self.schedule.layerwise else float(self.warmup)

    def rate(self, group: int, tokens: int, annealed: float | None = None) -> float:
        """The rate of this group in the step after which `tokens` are consumed.

        `annealed` is how far adaptive annealing has come, as a share of the training; None: as far as the tokens.
        """
        warmup = self.warmup_of(group)
        if tokens < warmup:
            return self.peak * tokens / warmup
        at = tokens if annealed is None else max(warmup, annealed * self.end)
        rest = self.end - warmup
        if rest <= 0:  # a warm-up as long as the run
            return self._after_warmup(float(at > warmup))
        return self._after_warmup(min(1.0, (at - warmup) / rest))

    def rates(self, tokens: int, annealed: float | None = None) -> tuple[float, ...]:
        """The rates of all groups, in the order of `groups`."""
        return tuple(self.rate(group, tokens, annealed) for group in range(len(self.groups)))

    def _after_warmup(self, progress: float) -> float:
        wanted = self.schedule
        if wanted.kind == "as_printed":
            return self.peak * math.cos(math.pi * (1 - progress) / 2)
        if wanted.kind == "wsd":
            fall = min(1.0, (1 - progress) / wanted.decay_share)
        else:
            fall = _FALLS[wanted.kind](progress)
        floor = self.peak * wanted.floor_ratio
        return floor + (self.peak - floor) * fall


def course_of(config: RunConfig) -> Course:
    """The schedule that this configuration describes."""
    per_step, wanted = config.batch.tokens_per_step, config.schedule
    unit = per_step if wanted.unit == "steps" else 1
    target = config.run.tokens or config.run.steps * per_step
    return Course(
        schedule=wanted,
        peak=config.optimizer.lr,
        layers=config.model.layers,
        warmup=wanted.warmup * unit,
        end=wanted.length * unit or target,
    )


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Where adaptive annealing stands. Two smoothed losses, one four times as slow, tell whether the loss improves.

    `ahead` is how far annealing is ahead of the tokens (below 0: behind), as a share of the training, at `tokens`. The
    losses are None before the first step.
    """

    tokens: int = 0
    ahead: float = 0.0
    quick: float | None = None
    slow: float | None = None


def pace_after(pace: Pace, course: Course, *, tokens: int, loss: float) -> Pace:
    """The pace after a step that ended at `tokens` with this loss (finite, the same on all ranks)."""
    wanted = course.schedule
    before, done = _share(pace.tokens, course), _share(tokens, course)
    horizons = max(0, tokens - pace.tokens) / course.end / wanted.adaptive_smoothing
    quick, slow = _smoothed(pace.quick, loss, horizons), _smoothed(pace.slow, loss, horizons / 4)
    if not wanted.adaptive_from or done <= wanted.adaptive_from:
        return Pace(tokens=tokens, quick=quick, slow=slow)
    # A smoothing over h lags behind by h, so the two losses are three horizons of improvement apart.
    improvement = (slow - quick) / (max(abs(slow), 1e-12) * 3 * wanted.adaptive_smoothing)
    passed = done - max(before, wanted.adaptive_from)
    ahead = pace.ahead + (_speed(improvement, wanted) - 1) * passed
    return Pace(
        tokens=tokens, ahead=_kept_reachable(done + ahead, done, wanted) - done, quick=quick, slow=slow
    )


def annealed_at(pace: Pace, course: Course, tokens: int) -> float | None:
    """How far annealing is in the step that leads to `tokens`; None without adaptive annealing.

    The config may have changed since `pace` was saved: what it allows is what counts.
    """
    wanted, done = course.schedule, _share(tokens, course)
    if not wanted.adaptive_from or done <= wanted.adaptive_from:
        return None
    return _kept_reachable(done + pace.ahead, done, wanted)


def _share(tokens: int, course: Course) -> float:
    return min(1.0, tokens / course.end)


def _smoothed(before: float | None, loss: float, horizons: float) -> float:
    return loss if before is None else before + (loss - before) * -math.expm1(-horizons)


def _speed(improvement: float, wanted: Schedule) -> float:
    """Fastest when nothing improves, 1 at the usual improvement, slowest at twice that; straight lines between."""
    share = min(2.0, max(0.0, improvement / wanted.adaptive_improvement))
    if share <= 1:
        return wanted.adaptive_fastest + (1 - wanted.adaptive_fastest) * share
    return 1 + (wanted.adaptive_slowest - 1) * (share - 1)


def _kept_reachable(annealed: float, done: float, wanted: Schedule) -> float:
    """Within the places from which the end can be reached, at the end, with speeds within the bounds."""
    least = 1 - wanted.adaptive_fastest * (1 - done)
    most = 1 - wanted.adaptive_slowest * (1 - done)
    return min(max(annealed, least), most)


def sampled(config: RunConfig, points: int = 200) -> dict[str, Any]:
    """The curves before a run: `{"tokens": […], "groups": {name: […]}}`, from 0 to the target.

    Adaptive annealing depends on the loss; what is drawn is its usual speed.
    """
    course, per_step = course_of(config), config.batch.tokens_per_step
    target = config.run.tokens or config.run.steps * per_step
    steps = max(1, -(-target // per_step))
    count = min(points, steps)
    tokens = sorted({steps * number // count * per_step for number in range(count + 1)})
    rates = [course.rates(at) for at in tokens]
    groups = {name: [row[group] for row in rates] for group, name in enumerate(course.groups)}
    return {"tokens": tokens, "groups": groups}
