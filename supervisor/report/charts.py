"""Charts as inline SVG without a script. Labels are HTML beside it, so that they stay legible at every width."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.report.html import Markup, el, join

WIDTH, HEIGHT = 1000, 100  # units of the drawing; the page stretches it
_MOST_MARKS = 2000
_MOST_RESUMES = 50
_LOG_FROM = 20.0  # ratio of greatest and least value


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: a series of the facts (columns step, low, high, mean), its label, its CSS class."""

    label: str
    style: str
    series: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Values from `low` to `high` onto 0 … size; logarithmic where they span orders of magnitude."""

    low: float
    high: float
    size: float
    log: bool = False

    def at(self, value: float) -> float:
        """Place of the value, in the drawing's units, 0.1 the least step."""
        low, high, value = (
            (math.log10(max(item, 1e-300)) for item in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.size * min(1.0, max(0.0, share)), 1)

    def ticks(self, about: int) -> list[float]:
        """Round values in the range."""
        if self.log:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for factors in ((1, 2, 5), (1, 3), (1,)):
                found = [factor * 10.0**exponent for exponent in exponents for factor in factors]
                found = [tick for tick in found if self.low <= tick <= self.high]
                if len(found) <= about + 2:
                    break
            return found[:: max(1, len(found) // about)]
        if self.high <= self.low:
            return [self.low]
        rough = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        return [
            number * step for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]


def line_chart(
    title: str,
    lines: Sequence[Line],
    across: Scale,
    *,
    resumes: Sequence[int] = (),
    broken: Sequence[int] = (),
    zero: bool = False,
) -> Markup:
    """Curves over steps; nothing when none of them has a value."""
    lines = [line for line in lines if line.series and line.series["step"]]
    if not lines:
        return Markup("")
    up = _vertical(lines, zero=zero)
    drawn = [_resumed(resumes, across), *(_curve(line, across, up) for line in lines)]
    drawn.append(_path("".join(f"M{across.at(step)} 0v6" for step in broken), "bad-mark"))
    legend = join(*(el("span", line.label, class_=f"key {line.style}") for line in lines if line.label))
    labels = [(up.at(tick), number(tick)) for tick in up.ticks(4)]
    below = [(across.at(tick), number(tick)) for tick in across.ticks(5)]
    return frame(join(title, " ", legend), _svg(drawn, title), labels, below)


def frame(
    title: Markup, drawing: Markup, left: Sequence[tuple[float, str]], below: Sequence[tuple[float, str]]
) -> Markup:
    """A drawing with its title and labels; places in units of the drawing, from the left and from the bottom."""
    ys = [el("span", text, style=f"bottom:{at / HEIGHT:.2%}") for at, text in left]
    xs = [
        el("span", text, style=f"left:{at / WIDTH:.2%}", class_="last" if at > WIDTH * 0.95 else None)
        for at, text in below
    ]
    return el(
        "figure",
        el("figcaption", title),
        el(
            "div",
            el("div", *ys, class_="left"),
            el("div", drawing, class_="plot"),
            el("div", *xs, class_="below"),
            class_="frame",
        ),
    )


def lanes(rows: Sequence[tuple[str, Markup]], below: Sequence[tuple[float, str]], title: Markup) -> Markup:
    """Drawings one above the other over the same time."""
    height = HEIGHT / len(rows)
    drawn = [
        el("g", row, transform=f"translate(0 {number * height:g})") for number, (_, row) in enumerate(rows)
    ]
    left = [(HEIGHT - (number + 0.5) * height, label) for number, (label, _) in enumerate(rows)]
    return frame(title, _svg(drawn, "timeline"), left, below)


def block(start: float, end: float, height: float, style: str, hint: str) -> Markup:
    """A stretch of a lane, at least so wide that it is seen."""
    return el(
        "rect",
        el("title", hint),
        x=start,
        y=height * 0.15,
        width=round(max(0.6, end - start), 1),
        height=round(height * 0.7, 2),
        class_=style,
    )


def ticks(places: Sequence[float], height: float, style: str) -> Markup:
    """Thin marks, as one path."""
    thinned = sorted(set(places))[-_MOST_MARKS:]
    return _path("".join(f"M{at} {height * 0.2:g}v{height * 0.6:g}" for at in thinned), style)


def number(value: float) -> str:
    """A value as a label: 0.00022 → 2.2e-4, 12500 → 12.5k."""
    if value == 0:
        return "0"
    size = abs(value)
    for least, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= least:
            return f"{value / (least if letter != 'k' else 1e3):.4g}{letter}"
    if size < 1e-3:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(exponent)}"
    return f"{value:.5g}"


def _vertical(lines: Sequence[Line], *, zero: bool) -> Scale:
    low = min(min(line.series["low"]) for line in lines)
    high = max(max(line.series["high"]) for line in lines)
    if low > 0 and high / low > _LOG_FROM and not zero:
        return Scale(low=low, high=high, size=HEIGHT, log=True)
    room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return Scale(low=0.0 if zero and low >= 0 else low - room, high=high + room, size=HEIGHT)


def _curve(line: Line, across: Scale, up: Scale) -> Markup:
    series = line.series
    xs = [across.at(step) for step in series["step"]]
    highs = [_down(up, value) for value in series["high"]]
    lows = [_down(up, value) for value in series["low"]]
    band = Markup("")
    if highs != lows:
        outline = [*zip(xs, highs, strict=True), *reversed(list(zip(xs, lows, strict=True)))]
        band = _path(_through(outline) + "z", f"band {line.style}")
    middle = list(zip(xs, (_down(up, value) for value in series["mean"]), strict=True))
    if len(middle) == 1:
        return el("circle", cx=middle[0][0], cy=middle[0][1], r=2, class_=f"dot {line.style}")
    return join(band, _path(_through(middle), f"line {line.style}"))


def _down(up: Scale, value: float) -> float:
    return round(HEIGHT - up.at(value), 1)


def _through(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _resumed(steps: Sequence[int], across: Scale) -> Markup:
    """Lines from top to bottom, or short ones where there are so many that they would hide the curve."""
    places = sorted({across.at(step) for step in steps})
    top = 0 if len(places) <= _MOST_RESUMES else HEIGHT - 6
    return _path("".join(f"M{at} {HEIGHT}V{top}" for at in places), "resumed")


def _path(commands: str, style: str) -> Markup:
    return el("path", d=commands, class_=style) if commands else Markup("")


def _svg(drawn: Sequence[Markup], title: str) -> Markup:
    return el(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )
