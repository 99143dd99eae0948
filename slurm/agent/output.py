"""Workers' output: cut into lines, stamped, merged into one log per node. The pipes are always drained."""

import contextlib
import fcntl
import os
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

LONGEST_LINE = 64 * 1024
KEPT_LINES = 20
_LOOK_S = 5.0
_AT_ONCE = 1024 * 1024  # of one worker per look, so that a loud one does not keep the loop
_CUT = " … (cut)"


class LineSplitter:
    """Bytes in, lines out. A carriage return overwrites, as on a terminal: of a progress bar its last state counts."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False  # the rest of a line that was cut

    @property
    def unfinished(self) -> str:
        """The line that has no end yet (a progress bar's present state)."""
        return _shown(self._rest)

    def feed(self, data: bytes) -> list[str]:
        lines = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = self._join(piece)
            if line is not None:
                lines.append(_shown(line))
            self._rest, self._skipping = b"", False
        if not self._skipping:
            self._rest = self._overwritten(self._rest + rest)
            if len(self._rest) > LONGEST_LINE:
                lines.append(_shown(self._rest))
                self._rest, self._skipping = b"", True
        return lines

    def finish(self) -> list[str]:
        """What is left when the stream ends."""
        line, self._rest, self._skipping = self._rest, b"", False
        return [_shown(line)] if line else []

    def _join(self, piece: bytes) -> bytes | None:
        return None if self._skipping else self._rest + piece

    @staticmethod
    def _overwritten(line: bytes) -> bytes:
        """Only what a later carriage return can still leave visible; keeps a bar of hours from growing."""
        start = line.rstrip(b"\r").rfind(b"\r")
        return line[start + 1 :] if start >= 0 else line


def _shown(line: bytes) -> str:
    visible = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
    if len(visible) > LONGEST_LINE:
        return visible[:LONGEST_LINE].decode(errors="replace") + _CUT
    return visible.decode(errors="replace").replace("\0", "\ufffd")


class NodeLog:
    """attempts/N/logs/<node>.log: `<UTC> g0001 r3 | text`. Written once per turn of the loop.

    A file that was moved away (rotation) is noticed within seconds, and a new one begun; what came until then is in the
    old one.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._descriptor = _opened(path)
        self._looked_at = time.monotonic()
        self._waiting: list[str] = []
        self.dropped = 0

    def add(self, generation: int, rank: int | None, text: str) -> None:
        """One line; `rank` None is the agent itself."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        who = "-" if rank is None else str(rank)
        self._waiting.append(f"{now} g{generation:04d} r{who} | {text}\n")

    def flush(self) -> None:
        """Write what has come in. A full disk costs lines, never the workers."""
        if not self._waiting:
            return
        self._follow_the_name()
        lines, self._waiting = self._waiting, []
        view = memoryview("".join(lines).encode(errors="replace"))
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self.dropped += len(lines)

    def close(self) -> None:
        self.flush()
        os.close(self._descriptor)

    def _follow_the_name(self) -> None:
        """Whether the file is still the one of this name, asked of the file system every few seconds."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        try:
            ours = os.fstat(self._descriptor)
            try:
                there = self._path.stat()
            except FileNotFoundError:
                there = None
            if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
                fresh = _opened(self._path)
                os.close(self._descriptor)
                self._descriptor = fresh
        except OSError:  # the old one will do
            return


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


class WorkerOutput:
    """The reading end of one worker's pipe."""

    def __init__(self, log: NodeLog, generation: int, rank: int) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        with contextlib.suppress(OSError):  # beyond the user's limit: the default size does too
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _AT_ONCE)
        self._log, self._generation, self._rank = log, generation, rank
        self._splitter = LineSplitter()
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self.open = True

    @property
    def last_lines(self) -> tuple[str, ...]:
        unfinished = self._splitter.unfinished
        return (*self._last, *([unfinished] if unfinished else []))[-KEPT_LINES:]

    def close_writer(self) -> None:
        """After the worker has its own copy."""
        os.close(self.writer)

    def drain(self) -> None:
        """Take over what is there, up to a portion."""
        taken = 0
        while self.open and taken < _AT_ONCE:
            try:
                data = os.read(self.reader, 65536)
            except BlockingIOError:
                return
            taken += len(data)
            self._take(self._splitter.feed(data) if data else self._splitter.finish())
            if not data:
                self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._take(self._splitter.finish())
            os.close(self.reader)

    def _take(self, lines: list[str]) -> None:
        for line in lines:
            self._log.add(self._generation, self._rank, line)
            self._last.append(line[:2000])
