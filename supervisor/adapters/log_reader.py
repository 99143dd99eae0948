"""What the logs of one attempt say while it runs: node logs and the output of the job's shell, read as they grow.

Bounded work: a few files are looked at a tick, a few megabytes read; what is far behind is jumped over, for these
lines only complete what exit records say. A supervisor that comes late reads the ends of the logs.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contract.layout import AttemptDir
from supervisor.adapters.tail import Tail, by_turns
from supervisor.adapters.watcher import Watched, Watcher
from supervisor.core.observation import LogLine
from supervisor.diagnose.catalogue import Tier, load
from supervisor.diagnose.findings import Event
from supervisor.diagnose.live import the_gate
from supervisor.diagnose.scan import Scanner

FILES_AT_ONCE = 256
BYTES_AT_ONCE = 4 * 1024 * 1024
BYTES_OF_ONE = 1024 * 1024
_ANYHOW_S = 30.0  # events may be lost: look without one so often
_MOST_LINES = 8
_NO_LINE = frozenset({Tier.NOISE, Tier.SUCCESS, Tier.EXIT})


@dataclass(kw_only=True)
class _Log:
    tail: Tail
    scanner: Scanner
    came: dict[tuple[int, str], int] = field(
        default_factory=dict
    )  # line and entry → the generation of that moment


class LogReader:
    """The logs of the newest attempt, tick after tick."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._place: Path | None = None
        self._watched: Watched | None = None
        self._logs: dict[Path, _Log] = {}
        self._waiting: list[Path] = []
        self._looked_at = 0.0

    @property
    def bytes_read(self) -> int:
        return sum(log.tail.bytes_read for log in self._logs.values())

    def look(self, place: AttemptDir, generation: int, now: float) -> tuple[LogLine, ...]:
        """The first lines that explain a failure of this generation, then the last remarks. `now`: our monotonic clock.

        Raises:
            OSError: the attempt's folders cannot be listed.
        """
        self._turn_to(place)
        if self._has_news(place, now):
            self._looked_at = now
            self._list(place)
        portion, self._waiting = self._waiting[:FILES_AT_ONCE], self._waiting[FILES_AT_ONCE:]
        grown = [self._logs[path] for path in portion if self._logs[path].tail.changed()]
        if grown:
            self._read(grown, generation)
        return self._told(generation)

    def close(self) -> None:
        if self._watched is not None:
            self._watcher.forget(self._watched)
            self._watched = None

    def _turn_to(self, place: AttemptDir) -> None:
        if self._place != place.path:
            self.close()
            self._place, self._logs, self._waiting = place.path, {}, []

    def _has_news(self, place: AttemptDir, now: float) -> bool:
        if self._waiting:
            return False  # the round that was begun goes on
        if self._watched is None and place.logs.is_dir():
            self._watched = self._watcher.watch(place.logs)
        return self._watched is None or self._watched.changed() or now - self._looked_at >= _ANYHOW_S

    def _list(self, place: AttemptDir) -> None:
        for path in _logs_of(place):
            if path not in self._logs:
                scanner = Scanner(str(path), len(self._logs), load(), the_gate(), keep_tail=False)
                self._logs[path] = _Log(tail=Tail(path), scanner=scanner)
        self._waiting = list(self._logs)

    def _read(self, grown: list[_Log], generation: int) -> None:
        by_tail = {log.tail: log for log in grown}
        read = by_turns(by_tail, BYTES_AT_ONCE, BYTES_OF_ONE)
        for tail, data in read:
            log = by_tail[tail]
            if data:
                log.scanner.take(data)
            events = log.scanner.events
            known = log.came
            log.came = {
                (event.line, event.entry.name): known.get((event.line, event.entry.name), generation)
                for event in events
            }
        left = {tail.path for tail, _ in read}
        self._waiting += [log.tail.path for log in grown if log.tail.path not in left or log.tail.changed()]

    def _told(self, generation: int) -> tuple[LogLine, ...]:
        events = [
            event
            for log in self._logs.values()
            for event in log.scanner.events
            if event.entry.tier not in _NO_LINE
            and event.generation in {0, generation}
            and log.came.get((event.line, event.entry.name)) == generation
        ]
        hard = [event for event in events if not event.soft and event.entry.tier is not Tier.HINT]
        remarks = [event for event in events if event.soft or event.entry.tier is Tier.HINT]
        return tuple(_line(event) for event in (*hard[:_MOST_LINES], *remarks[-_MOST_LINES // 2 :]))


def _logs_of(place: AttemptDir) -> Iterator[Path]:
    for folder, endings in ((place.submission, (".out", ".err")), (place.logs, (".log",))):
        if folder.is_dir():
            with os.scandir(folder) as entries:
                names = sorted(
                    item.name for item in entries if item.name.endswith(endings) and item.is_file()
                )
            yield from (folder / name for name in names)


def _line(event: Event) -> LogLine:
    return LogLine(
        entry=event.entry.name,
        node=event.node,
        rank=event.rank if event.rank is not None else event.task,
        remark=event.soft or event.entry.tier is Tier.HINT,
        text=event.text[:300],
    )
