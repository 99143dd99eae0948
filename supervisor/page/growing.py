"""A run's curves as its metrics grow: a look costs what is new, and a long past is read a piece at a time.

The buckets are the report's. Where a generation resumes before the end of an earlier one, that one's file alone is
read again: what lies beyond the resume was done again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from contract.history import History
from contract.layout import RunDir, parse_metrics_name
from supervisor.report.curves import Curves, parsed, width_of

_BLOCK = 64 << 10  # read and parsed at once: for so short a time nobody else in this process is held up
_GROWS = 2  # newest files that may still grow
_AT_ONCE = 8 << 20  # bytes in one look

Writer = tuple[int, int]


@dataclass(kw_only=True)
class _File:
    """One generation's metrics, as far as they were read. `limit`: the steps beyond it were done again."""

    path: Path
    limit: float
    unread: bool = True
    offset: int = 0
    rest: bytes = b""
    last: int = 0
    curves: Curves = field(default_factory=lambda: Curves(width=1))

    def take(self, lines: list[bytes]) -> None:
        rows = parsed(lines)
        if rows:
            self.last = max(self.last, rows[-1]["step"])
            self.widen(width_of(self.last))
            self.curves.add(rows, self.limit)

    def widen(self, width: int) -> None:
        """Wider buckets, from now on and for what is there."""
        if width > self.curves.width:
            wider = Curves(width=width)
            wider.join(self.curves)
            self.curves = wider


class GrowingCurves:
    """`breathe` is called between two blocks."""

    def __init__(self, run: RunDir, breathe: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._breathe = breathe
        self._files: dict[Writer, _File] = {}
        self.behind = 0  # bytes that are still to be read

    def look(self, history: History) -> Curves:
        """Everything that was read so far, in buckets of one width.

        Raises:
            OSError: the metrics cannot be read.
        """
        self._find(_resumes(history))
        left = _AT_ONCE
        self.behind = 0
        for number, writer in enumerate(sorted(self._files, reverse=True)):
            file = self._files[writer]
            if number < _GROWS or file.unread:
                left -= self._read(file, max(0, left))
        whole = Curves(width=width_of(max((file.last for file in self._files.values()), default=0)))
        for writer in sorted(self._files):
            self._files[writer].widen(whole.width)
            whole.join(self._files[writer].curves)
        return whole

    def _find(self, resumes: Mapping[Writer, int]) -> None:
        """New files, and old ones of which less counts now."""
        for path in self._run.metrics.glob("*.jsonl"):
            writer = parse_metrics_name(path.name)
            if writer is None:
                continue
            limit = min((step for later, step in resumes.items() if later > writer), default=math.inf)
            known = self._files.get(writer)
            if known is None or limit < min(known.limit, known.last):
                self._files[writer] = _File(path=path, limit=limit)
            else:
                known.limit = limit

    def _read(self, file: _File, most: int) -> int:
        """Bytes that were read, at most about `most`."""
        done = 0
        with file.path.open("rb") as source:
            size = source.seek(0, 2)
            if size < file.offset:  # another file stands there
                file.offset, file.rest, file.last, file.curves = 0, b"", 0, Curves(width=file.curves.width)
            source.seek(file.offset)
            while done < most and (block := source.read(_BLOCK)):
                done += len(block)
                *lines, file.rest = (file.rest + block).split(b"\n")
                file.take(lines)
                self._breathe()
        file.offset += done
        file.unread = size > file.offset
        self.behind += max(0, size - file.offset)
        return done


def _resumes(history: History) -> dict[Writer, int]:
    """Where each generation that has begun began, as the journal tells."""
    return {
        (attempt.number, generation.number): generation.resume_step
        for attempt in history.attempts
        for generation in attempt.generations
        if generation.resume_step is not None
    }
