"""Reading and writing journal.jsonl. One writer at a time: whoever holds the run's lock."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.event_lines import decode, encode
from contract.events import Body, Event


class JournalReplacedError(OSError):
    """The journal's path no longer names the file that we write to: what we append would be seen by nobody."""


class JournalReader:
    """Reads incrementally: each `new` returns what was appended since, so a tick costs what changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self.problems: list[str] = []

    def leave_out(self, most: int) -> None:
        """Begin with the first whole line among the last `most` bytes: for whoever shows the newest events only.

        Raises:
            FileNotFoundError: there is no journal.
        """
        with self.path.open("rb") as file:
            start = max(0, file.seek(0, 2) - most)
            file.seek(start)
            self._offset = start + len(file.readline()) if start else 0

    def new(self) -> list[Event]:
        """Events appended since the last call. A torn last line waits until it is whole (or cut off)."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, _, _torn = data.rpartition(b"\n")
        if not whole:
            return []
        start = self._offset
        self._offset += len(whole) + 1
        return list(self._decoded(whole, start))

    def _decoded(self, data: bytes, start: int) -> Iterator[Event]:
        for line in data.split(b"\n"):
            try:
                event = decode(line)
            except (ValueError, KeyError, TypeError) as error:
                self.problems.append(f"{self.path} at byte {start}: {error}")
                event = None
            start += len(line) + 1
            if event is not None:
                yield event


class Journal:
    """The writing side. The caller holds the run's lock, and hands in the clock and the epoch's guard."""

    def __init__(self, path: Path, *, clock: Callable[[], float], epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self._clock = clock
        self._cut_torn_line()
        self.reader = JournalReader(path)
        self._seq = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def replay(self) -> list[Event]:
        """Everything written so far (call once, before the first append)."""
        events = self.reader.new()
        self._seq = max((event.seq for event in events), default=0)
        return events

    def append(self, body: Body) -> Event:
        """Write one event durably, and return it.

        Raises:
            JournalReplacedError: another file stands at the path, or none; nothing was written.
        """
        self._check_place()
        event = Event(seq=self._seq + 1, time=self._clock(), epoch=self.epoch, body=body)
        data = encode(event)
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(f"{self.path}: only {written} of {len(data)} bytes were written (disk full?)")
        os.fsync(self._descriptor)
        self._seq += 1
        self.reader._offset += len(data)  # noqa: SLF001 - ours; we need not read what we wrote
        return event

    def close(self) -> None:
        os.close(self._descriptor)

    def _check_place(self) -> None:
        """`sed -i`, an editor or a restored backup put another file at the path, and leave ours without a name."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            raise JournalReplacedError(
                f"{self.path.name} was removed while we wrote it; nothing more is written until it is back"
            ) from None
        if not os.path.samestat(there, os.fstat(self._descriptor)):
            raise JournalReplacedError(
                f"{self.path.name} was replaced by another file while we wrote it; "
                "the run is taken up afresh from the file that is there now"
            )

    def _cut_torn_line(self) -> None:
        """A crash in mid-append leaves a line without end: cut it off, or the next event would join it."""
        try:
            with self.path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                position = size
                while position > 0:
                    start = max(0, position - 65536)
                    file.seek(start)
                    piece = file.read(position - start)
                    newline = piece.rfind(b"\n")
                    if newline >= 0:
                        position = start + newline + 1
                        break
                    position = start
                if position != size:
                    file.truncate(position)
                    os.fsync(file.fileno())
        except FileNotFoundError:
            return
