"""The logs of all nodes and attempts of a run as one, by the time that each line begins with."""

import heapq
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from contract.layout import RunDir

_LINE = re.compile(r"(\S+Z) g\d+ r(\S+) \| ")  # as the node agents write it


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which lines. `attempt` 0: the newest, -1: all; `rank` -1: all, the agents' own lines too."""

    attempt: int = 0
    node: str = ""
    rank: int = -1
    pattern: re.Pattern[str] | None = None

    def takes(self, line: str) -> bool:
        """Whether this line is one of them."""
        if self.rank >= 0:
            found = _LINE.match(line)
            if found is None or found[2] != str(self.rank):
                return False
        return self.pattern is None or self.pattern.search(line) is not None


def merged(run: RunDir, wanted: Wanted, tail: int) -> Iterable[str]:
    """Lines as they stand, each with the node's name where there are several.

    Raises:
        FileNotFoundError: there is no such log.
    """
    found = _paths(run, wanted)
    if not found:
        where = f" of node {wanted.node}" if wanted.node else "s"
        raise FileNotFoundError(f"{run.attempts}: no log{where} there")
    texts = _texts(found, wanted)
    return deque(texts, maxlen=tail) if tail else texts


def _texts(found: list[tuple[int, list[Path]]], wanted: Wanted) -> Iterator[str]:
    """Attempt after attempt: two never run at once."""
    named = _several(found)
    for _, paths in found:
        lines = heapq.merge(*(_stamped(path) for path in paths), key=lambda item: item[0])
        yield from (_named(path, text, named=named) for _, path, text in lines if wanted.takes(text))


def follow(run: RunDir, wanted: Wanted, tail: int, wait: Callable[[], bool]) -> Iterator[str]:
    """The last `tail` lines, and then what comes, of nodes and attempts that come later too; until `wait` says no.

    What is read at one look is merged by time; a line that reaches this host later follows later.
    """
    places: dict[Path, _Place] = {}
    first = True
    oldest = max((number for number, _ in _paths(run, wanted)), default=0) if wanted.attempt == 0 else 0
    if wanted.attempt == 0:
        wanted = replace(wanted, attempt=-1)
    while True:
        found = [item for item in _paths(run, wanted) if item[0] >= oldest]
        named = _several(found)
        fresh: list[tuple[str, Path, str]] = []
        for path in (path for _, paths in found for path in paths):
            fresh += places.setdefault(path, _Place(path)).new()
        fresh.sort(key=lambda item: item[0])
        texts = [_named(path, text, named=named) for _, path, text in fresh if wanted.takes(text)]
        yield from texts[-tail:] if first and tail else texts
        first = False
        if not wait():
            return


class _Place:
    """How far one log has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._stamp = ""
        self._rest = b""

    def new(self) -> Iterator[tuple[str, Path, str]]:
        """Whole lines since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace") + "\n"
            self._stamp = _stamp(text) or self._stamp
            yield self._stamp, self._path, text


def _paths(run: RunDir, wanted: Wanted) -> list[tuple[int, list[Path]]]:
    """(attempt, its logs), oldest first; attempts without one are left out."""
    numbers = sorted(int(path.name) for path in run.attempts.glob("*") if path.name.isdecimal())
    if wanted.attempt > 0:
        numbers = [number for number in numbers if number == wanted.attempt]
    elif wanted.attempt == 0:
        numbers = numbers[-1:]
    found = []
    for number in numbers:
        folder = run.attempt(number).logs
        paths = [folder / f"{wanted.node}.log"] if wanted.node else sorted(folder.glob("*.log"))
        paths = [path for path in paths if path.is_file()]
        if paths:
            found.append((number, paths))
    return found


def _several(found: list[tuple[int, list[Path]]]) -> bool:
    return any(len(paths) > 1 for _, paths in found)


def _stamped(path: Path) -> Iterator[tuple[str, Path, str]]:
    """(time, file, line); a line without a time of its own stays behind the one before it."""
    stamp = ""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            stamp = _stamp(line) or stamp
            yield stamp, path, line if line.endswith("\n") else line + "\n"


def _stamp(line: str) -> str:
    first = line.split(" ", 1)[0]
    return first if first[:4].isdigit() and first.endswith("Z") else ""


def _named(path: Path, text: str, *, named: bool) -> str:
    return f"{path.stem}: {text}" if named else text
