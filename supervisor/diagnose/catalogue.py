"""The failure signatures: loaded from the TOML files beside this module, checked, and matched against one text.

Reading happens once, in `load`; everything else is pure. Order matters: the first entry that matches counts, so
the files stand from the narrow to the general.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from contract.states import Cause

FILES = (
    "noise",
    "own",
    "slurm",
    "memory",
    "hardware",
    "storage",
    "data",
    "gpu",
    "comm",
    "network",
    "numerics",
    "program",
    "exits",
)
_KEYS = frozenset(
    {
        "name",
        "class",
        "tier",
        "retry",
        "blame",
        "keys",
        "patterns",
        "unless",
        "within",
        "any_level",
        "generic",
        "zh",
        "en",
    }
)

# What a machine runs out of or breaks by.
_REASONS = frozenset({Cause.DISK_FULL, Cause.FILESYSTEM, Cause.HOST_OOM, Cause.GPU_OOM, Cause.GPU_HARDWARE})


class Tier(StrEnum):
    """What a matching line is worth as an explanation, the best first."""

    ROOT = "root"  # says itself what went wrong
    OUTSIDE = "outside"  # somebody or something from outside ended the job
    WEAK = "weak"  # a death without a reason of its own
    VICTIM = "victim"  # suffers from another process's failure
    EXIT = "exit"  # says that something failed, not why
    HINT = "hint"  # counts only in a job that failed anyhow
    NOISE = "noise"  # looks like a failure and is none
    SUCCESS = "success"  # the job came to its end


class Retry(StrEnum):
    """Whether the same run may be started again as it is."""

    YES = "yes"
    ONCE = "once"  # chance may have caused it; twice, and it is no chance
    NO = "no"

    @property
    def again(self) -> bool:
        """The answer for somebody who does not count attempts."""
        return self is not Retry.NO


class CatalogueError(Exception):
    """The catalogue's data is wrong; a test loads it, so users never see this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One signature. `keys`: lower-case words of which one must be in the line (the cheap test before `patterns`).

    `generic`: it says what did not work, not why; a machine's own reason beside it says more.
    """

    name: str
    cause: Cause
    tier: Tier
    retry: Retry
    blame: bool
    any_level: bool
    generic: bool
    keys: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None
    within: re.Pattern[str] | None
    zh: str
    en: str

    def explains(self, other: "Entry") -> bool:
        """Whether this is why the other one did not work."""
        return other.generic and self.tier is Tier.ROOT and self.cause in _REASONS

    def match(self, text: str, frames: str = "") -> re.Match[str] | None:
        """The match in this text; `frames` are the lines of the traceback that it came from."""
        if self.within is not None and not self.within.search(frames):
            return None
        found = next((match for pattern in self.patterns if (match := pattern.search(text))), None)
        return None if found is None or (self.unless is not None and self.unless.search(text)) else found


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """An entry that matched, and what its pattern captured."""

    entry: Entry
    found: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """All entries in order, and the numbers of the entries for each key."""

    entries: tuple[Entry, ...]
    index: Mapping[str, tuple[int, ...]]

    def named(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.index)

    def match(self, text: str, frames: str = "", keys: Iterable[str] | None = None) -> Match | None:
        """The first entry that matches; `keys`: those that the text may hold, where that is known, else all."""
        numbers = (
            range(len(self.entries)) if keys is None else sorted({n for key in keys for n in self.index[key]})
        )
        for number in numbers:
            entry = self.entries[number]
            if (found := entry.match(text, frames)) is not None:
                return Match(entry=entry, found=found.groupdict())
        return None


def catalogue_of(entries: Iterable[Entry]) -> Catalogue:
    """Entries with their index."""
    ordered = tuple(entries)
    index: dict[str, list[int]] = {}
    for number, entry in enumerate(ordered):
        for key in entry.keys:
            index.setdefault(key, []).append(number)
    return Catalogue(
        entries=ordered, index=MappingProxyType({key: tuple(numbers) for key, numbers in index.items()})
    )


@cache
def load() -> Catalogue:
    """The catalogue that comes with this package.

    Raises:
        CatalogueError: an entry is wrong.
    """
    folder = resources.files(__package__) / "catalogue"
    entries: list[Entry] = []
    for name in FILES:
        data = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
        entries += parse(data, name)
    names = [entry.name for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CatalogueError(f"names that occur twice: {', '.join(twice)}")
    return catalogue_of(entries)


def parse(data: Mapping[str, Any], where: str) -> Iterable[Entry]:
    """The entries of one file; `[fix.CLASS]` gives the texts of entries that have none of their own."""
    fixes = data.get("fix", {})
    return [_entry(raw, fixes, where) for raw in data.get("entry", [])]


def _entry(raw: Mapping[str, Any], fixes: Mapping[str, Any], where: str) -> Entry:
    name = raw.get("name", "?")
    if unknown := set(raw) - _KEYS:
        raise CatalogueError(f"{where}: {name}: unknown {', '.join(sorted(unknown))}")
    try:
        cause, tier = Cause(raw["class"]), Tier(raw["tier"])
        words = {**fixes.get(cause, {}), **raw}
        silent = tier in {Tier.NOISE, Tier.SUCCESS}
        return Entry(
            name=name,
            cause=cause,
            tier=tier,
            retry=Retry(raw.get("retry", "no")),
            blame=raw.get("blame", False),
            any_level=raw.get("any_level", False),
            generic=raw.get("generic", False),
            keys=tuple(raw["keys"]),
            patterns=tuple(re.compile(pattern, re.IGNORECASE) for pattern in raw["patterns"]),
            unless=_compiled(raw.get("unless")),
            within=_compiled(raw.get("within")),
            zh=words.get("zh", "") if silent else words["zh"],
            en=words.get("en", "") if silent else words["en"],
        )
    except (KeyError, ValueError, re.error) as error:
        raise CatalogueError(f"{where}: {name}: {type(error).__name__}: {error}") from error


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern, re.IGNORECASE)
