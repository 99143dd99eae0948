"""The logs of all nodes of an attempt as one, by the time that each line begins with."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from contract.layout import RunDir


def merged(run: RunDir, attempt: int, node: str, tail: int) -> Iterable[str]:
    """Lines as they stand, each with the node's name where there are several.

    Raises:
        FileNotFoundError: there is no such log.
    """
    number = attempt or max(
        (int(path.name) for path in run.attempts.glob("*") if path.name.isdecimal()), default=1
    )
    folder = run.attempt(number).logs
    paths = [folder / f"{node}.log"] if node else sorted(folder.glob("*.log"))
    paths = [path for path in paths if path.is_file()]
    if not paths:
        raise FileNotFoundError(f"{folder}: no log{f' of node {node}' if node else 's'} there")
    lines = heapq.merge(*(_stamped(path, named=len(paths) > 1) for path in paths), key=lambda pair: pair[0])
    texts = (text for _, text in lines)
    return deque(texts, maxlen=tail) if tail else texts


def _stamped(path: Path, *, named: bool) -> Iterator[tuple[str, str]]:
    """(time, line); a line without a time of its own stays behind the one before it."""
    stamp = ""
    prefix = f"{path.stem}: " if named else ""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            first = line.split(" ", 1)[0]
            if first[:4].isdigit() and first.endswith("Z"):
                stamp = first
            yield stamp, prefix + (line if line.endswith("\n") else line + "\n")
