"""What a checkpoint and a model have in common, name by name. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.reshape.apart import Shape

_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Change:
    """Names of parameters and buffers by what becomes of them.

    `resized` keep their first rows: the shapes differ in the first dimension alone (a larger vocabulary, more experts).
    `mismatched` differ otherwise and start new, like `new`. `dropped` are in the checkpoint alone.
    """

    loaded: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    resized: Mapping[str, tuple[Shape, Shape]]  # (in the checkpoint, in the model)
    mismatched: Mapping[str, tuple[Shape, Shape]]

    @property
    def none(self) -> bool:
        """Whether the model is the checkpoint's."""
        return not (self.new or self.dropped or self.resized or self.mismatched)

    def kept(self, name: str, shape: Shape) -> int:
        """How many elements of a parameter of this shape come from the checkpoint: its first."""
        if name in self.loaded:
            return math.prod(shape)
        if name in self.resized:
            was, now = self.resized[name]
            return min(was[0], now[0]) * math.prod(now[1:])
        return 0

    def sentence(self) -> str:
        """For people: how many of each, and the first names."""
        parts = [
            f"{len(names)} {word} ({_shown(names)})"
            for word, names in (
                ("new", self.new),
                ("dropped", self.dropped),
                ("resized", _with_shapes(self.resized)),
                ("mismatched, so new", _with_shapes(self.mismatched)),
            )
            if names
        ]
        return "; ".join([f"{len(self.loaded)} loaded", *parts])

    def facts(self) -> dict[str, Any]:
        """Every name, as JSON."""
        return {
            "loaded": list(self.loaded),
            "new": list(self.new),
            "dropped": list(self.dropped),
            "resized": {name: list(map(list, shapes)) for name, shapes in self.resized.items()},
            "mismatched": {name: list(map(list, shapes)) for name, shapes in self.mismatched.items()},
        }


def compare(stored: Mapping[str, Shape], model: Mapping[str, Shape]) -> Change:
    """What becomes of each name when a checkpoint with these shapes is loaded into a model with those."""
    common = [name for name in sorted(stored) if name in model]
    differing = {name: (stored[name], model[name]) for name in common if stored[name] != model[name]}
    resized = {name: pair for name, pair in differing.items() if pair[0] and pair[0][1:] == pair[1][1:]}
    return Change(
        loaded=tuple(name for name in common if name not in differing),
        new=tuple(sorted(set(model) - set(stored))),
        dropped=tuple(sorted(set(stored) - set(model))),
        resized=resized,
        mismatched={name: pair for name, pair in differing.items() if name not in resized},
    )


def _shown(names: Sequence[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _with_shapes(pairs: Mapping[str, tuple[Shape, Shape]]) -> list[str]:
    return [f"{name} {was} → {now}" for name, (was, now) in pairs.items()]
