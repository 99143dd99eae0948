"""The logs of all nodes and attempts of a run as one, by the time that each line begins with."""

import heapq
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contract.config import ConfigError, read_resolved
from contract.language import spoken
from contract.layout import RunDir
from supervisor.adapters.tail import Tail
from supervisor.core.stacks import some_ranks

VERSION = 1
_LINE = re.compile(r"(\S+Z) g(\d+) r(\S+) \| ")  # as the node agents write it
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")  # as ciuic's trainer begins its own
_FILE = re.compile(r"(?P<node>.+)\.log(\.\d+)?\Z")  # rotated ones have a number
_AT_ONCE = 16 << 20


class NoSuchLogError(LookupError):
    """The message names what was asked for and what there is."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which lines. `attempt` 0: the newest, -1: all; `rank` -1: all, the agents' own lines too. `as_json`: one object a line."""

    attempt: int = 0
    node: str = ""
    rank: int = -1
    pattern: re.Pattern[str] | None = None
    as_json: bool = False

    def takes(self, line: str) -> bool:
        """Whether this line is one of them."""
        if self.rank >= 0:
            found = _LINE.match(line)
            if found is None or found[3] != str(self.rank):
                return False
        return self.pattern is None or self.pattern.search(line) is not None


def merged(run: RunDir, wanted: Wanted, tail: int) -> Iterable[str]:
    """Lines as they stand, each with the node's name where there are several.

    Raises:
        NoSuchLogError: there is no such log, or (when all is read) none of that rank.
    """
    found = _paths(run, wanted, rotated=True)
    if not found:
        raise NoSuchLogError(_nothing(run, wanted))
    texts = _texts(found, wanted)
    return _of_a_rank(run, wanted, found, deque(texts, maxlen=tail) if tail else texts)


def _of_a_rank(
    run: RunDir, wanted: Wanted, found: list[tuple[int, list[Path]]], texts: Iterable[str]
) -> Iterator[str]:
    """The lines; and when there are none because no such rank ever wrote, that."""
    silent = True
    for text in texts:
        silent = False
        yield text
    if silent and wanted.rank >= 0:
        ranks = _ranks(found)
        if wanted.rank not in ranks and wanted.rank >= _world(run):
            where, there = _attempts_words([number for number, _ in found]), _numbers(ranks)
            raise NoSuchLogError(
                f"{run.run_id}：{where}中没有 rank {wanted.rank} 的日志；有日志的 rank：{there or '无'}"
                if spoken() == "zh"
                else f"{run.run_id}: no rank {wanted.rank} in the logs of {where}; ranks that wrote: {there or 'none'}"
            )


def _nothing(run: RunDir, wanted: Wanted) -> str:
    """What was asked for that is not there, and what is."""
    there = _numbers(number for number, _ in _paths(run, replace(wanted, attempt=-1, node=""), rotated=True))
    nodes = sorted({_node(path) for _, paths in _paths(run, replace(wanted, node="")) for path in paths})
    if spoken() == "zh":
        asked = f"第 {wanted.attempt} 次作业" if wanted.attempt > 0 else "任务"
        of = (
            f"没有节点 {wanted.node} 的日志；有日志的节点：{', '.join(nodes)}"
            if wanted.node and nodes
            else "还没有日志"
        )
        more = f"；有日志的作业：{there}" if wanted.attempt > 0 and there and not nodes else ""
        return f"{run.run_id}：{asked}{of}{more}"
    asked = f"attempt {wanted.attempt}" if wanted.attempt > 0 else "the run"
    of = (
        f"no log of node {wanted.node}; nodes with logs: {', '.join(nodes)}"
        if wanted.node and nodes
        else "no logs"
    )
    more = f"; attempts with logs: {there}" if wanted.attempt > 0 and there and not nodes else ""
    return f"{run.run_id}: {asked} has {of}{more}"


def _attempts_words(numbers: Sequence[int]) -> str:
    if spoken() == "zh":
        return f"第 {_numbers(numbers)} 次作业"
    return f"attempt{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"


def _numbers(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    return some_ranks(tuple(numbers)).partition(" ")[2]


def _world(run: RunDir) -> int:
    """So many ranks the run has; one of them may have written nothing."""
    try:
        return read_resolved(run.config).job.world_size
    except ConfigError:
        return 0


def _ranks(found: list[tuple[int, list[Path]]]) -> frozenset[int]:
    """Ranks that wrote a line."""
    heads = (_LINE.match(line) for _, paths in found for path in paths for _, _, line in _stamped(path))
    return frozenset(int(head[3]) for head in heads if head and head[3].isdecimal())


def _texts(found: list[tuple[int, list[Path]]], wanted: Wanted) -> Iterator[str]:
    """Attempt after attempt: two never run at once."""
    named = _several(found)
    for _, paths in found:
        lines = heapq.merge(*(_stamped(path) for path in paths), key=lambda item: item[0])
        yield from (_shown(path, text, wanted, named=named) for _, path, text in lines if wanted.takes(text))


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
        texts = [_shown(path, text, wanted, named=named) for _, path, text in fresh if wanted.takes(text)]
        yield from texts[-tail:] if first and tail else texts
        first = False
        if not wait():
            return


class _Place:
    """How far one log has been read, over rotations."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path, whole=True)
        self._stamp = ""

    def new(self) -> Iterator[tuple[str, Path, str]]:
        """Whole lines since the last look."""
        while data := self._tail.read(_AT_ONCE):
            for line in data.split(b"\n")[:-1]:
                text = line.decode(errors="replace") + "\n"
                self._stamp = _stamp(text) or self._stamp
                yield self._stamp, self._tail.path, text


def _paths(run: RunDir, wanted: Wanted, *, rotated: bool = False) -> list[tuple[int, list[Path]]]:
    """(attempt, its logs), oldest first; attempts without one are left out."""
    numbers = sorted(int(path.name) for path in run.attempts.glob("*") if path.name.isdecimal())
    if wanted.attempt > 0:
        numbers = [number for number in numbers if number == wanted.attempt]
    elif wanted.attempt == 0:
        numbers = numbers[-1:]
    found = []
    for number in numbers:
        folder = run.attempt(number).logs
        paths = [path for path in sorted(folder.glob("*.log*")) if _FILE.match(path.name) and path.is_file()]
        paths = [
            path
            for path in paths
            if (not wanted.node or _node(path) == wanted.node) and (rotated or path.suffix == ".log")
        ]
        if paths:
            found.append((number, paths))
    return found


def _several(found: list[tuple[int, list[Path]]]) -> bool:
    return any(len({_node(path) for path in paths}) > 1 for _, paths in found)


def _node(path: Path) -> str:
    found = _FILE.match(path.name)
    return found["node"] if found else path.stem


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


def _shown(path: Path, text: str, wanted: Wanted, *, named: bool) -> str:
    """The line for people, with its node where there are several; or for programs."""
    if not wanted.as_json:
        return f"{_node(path)}: {text}" if named else text
    head = _LINE.match(text)
    said = text[head.end() if head else 0 :].rstrip("\n")
    level = _LEVEL.match(said)
    value = {
        "version": VERSION,
        "time": head[1] if head else None,
        "attempt": int(path.parent.parent.name),
        "generation": int(head[2]) if head else None,
        "node": _node(path),
        "rank": int(head[3]) if head and head[3].isdecimal() else None,
        "level": level[1].lower() if level else None,
        "text": said,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"
