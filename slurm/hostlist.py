"""Slurm's short form of node names: `n[1-3,07],gpu[1-2]-[0-1]` and the names that it stands for. Pure."""

import re
from collections.abc import Iterator
from itertools import product

_MOST = 100_000  # a list that claims to be longer is none
_PARTS = re.compile(r"\[([^\[\]]*)\]")


def expand(text: str) -> tuple[str, ...]:
    """The names, in order. Text that is no such list (`(null)`, `None assigned`, "") stands for no node."""
    names: list[str] = []
    for item in _split(text.strip()):
        for name in _expand_one(item):
            names.append(name)
            if len(names) > _MOST:
                return ()
    return tuple(names)


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    if not text or any(char in text for char in "() \t"):
        return []
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


def _expand_one(item: str) -> Iterator[str]:
    fixed = _PARTS.split(item)[::2]
    ranges = [list(_numbers(inner)) for inner in _PARTS.findall(item)]
    for chosen in product(*ranges):
        yield "".join(part for pair in zip(fixed, [*chosen, ""], strict=True) for part in pair)


def _numbers(text: str) -> Iterator[str]:
    """`1-3,07` → 1 2 3 07. Leading zeros are part of a name."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield first
        elif first.isdecimal() and last.isdecimal() and int(last) - int(first) <= _MOST:
            yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
