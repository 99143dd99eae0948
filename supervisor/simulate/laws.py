"""Distributions of durations, written as a user writes them: `90`, `lognormal:60,0.5`, `uniform:3600,28800`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

# Law → names of its two numbers (the second unused where it is ""). All durations in seconds.
_NUMBERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "constant": ("seconds", ""),
        "exponential": ("mean", ""),
        "uniform": ("least", "most"),
        "lognormal": ("median", "sigma"),
        "weibull": ("shape", "scale"),
    }
)
HELP = "; ".join(f"{name}:{','.join(filter(None, numbers))}" for name, numbers in _NUMBERS.items())


@dataclass(frozen=True, kw_only=True)
class Law:
    """A distribution of a duration (s). What `first` and `second` mean stands in HELP."""

    name: str = "constant"
    first: float = 0.0
    second: float = 0.0

    @property
    def mean(self) -> float:
        """Mean (s)."""
        match self.name:
            case "uniform":
                return (self.first + self.second) / 2
            case "lognormal":
                return self.first * math.exp(self.second**2 / 2)
            case "weibull":
                return self.second * math.gamma(1 + 1 / self.first)
            case _:
                return self.first

    def draw(self, random: Random) -> float:
        """One duration (s). Takes exactly one number from `random`, so that streams stay in step between scenarios."""
        share = min(max(random.random(), 1e-12), 1 - 1e-12)
        return _QUANTILES[self.name](self.first, self.second, share)

    def scaled(self, factor: float) -> "Law":
        """The same shape with every duration multiplied."""
        match self.name:
            case "uniform":
                return Law(name=self.name, first=self.first * factor, second=self.second * factor)
            case "weibull":
                return Law(name=self.name, first=self.first, second=self.second * factor)
            case _:
                return Law(name=self.name, first=self.first * factor, second=self.second)

    def __str__(self) -> str:
        if self.name == "constant":
            return f"{self.first:g}"
        return f"{self.name}:{self.first:g}" + (f",{self.second:g}" if _NUMBERS[self.name][1] else "")


def parse(value: Any) -> Law:
    """The law in this number or text.

    Raises:
        ValueError: it is none; the message says what is allowed.
    """
    if isinstance(value, Law):
        return value
    name, colon, rest = str(value).strip().partition(":")
    if not colon:
        name, rest = "constant", name
    if name not in _NUMBERS:
        raise ValueError(f"unknown distribution {name!r}; known are seconds alone, or {HELP}")
    try:
        numbers = [float(item) for item in rest.split(",")]
    except ValueError:
        numbers = []
    wanted = sum(bool(item) for item in _NUMBERS[name])
    if len(numbers) != wanted or not all(math.isfinite(item) for item in numbers):
        raise ValueError(f"{value!r} is no duration: seconds alone, or {HELP}")
    law = Law(name=name, first=numbers[0], second=numbers[1] if wanted == 2 else 0.0)
    if (
        min(numbers) < 0
        or (name == "weibull" and law.first == 0)
        or (name == "uniform" and law.second < law.first)
    ):
        raise ValueError(f"{value!r}: numbers must not be negative, a shape not 0, a range not backwards")
    return law


def _lognormal(median: float, sigma: float, share: float) -> float:
    return median * math.exp(sigma * _normal_quantile(share))


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist  # noqa: PLC0415 - 10 ms, and most scenarios do without

    return NormalDist().inv_cdf(share)


_QUANTILES: Mapping[str, Callable[[float, float, float], float]] = MappingProxyType(
    {
        "constant": lambda first, _second, _share: first,
        "exponential": lambda mean, _second, share: -mean * math.log1p(-share),
        "uniform": lambda least, most, share: least + (most - least) * share,
        "lognormal": _lognormal,
        "weibull": lambda shape, scale, share: scale * (-math.log1p(-share)) ** (1 / shape),
    }
)
