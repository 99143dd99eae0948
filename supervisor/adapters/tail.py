"""Growing log files, read from where they were left. What another host writes is found by polling, never by events.

A file is known by device, inode and a hash of its head: renamed (rotation), cut and written again (copytruncate) or
replaced, it is seen to be another one. Files are opened for one read: thousands of nodes need no descriptors.
"""

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

_HEAD = 1024
LONGEST_LINE = 256 * 1024  # more of one line is handed out in pieces
_FROM_THE_END = 256 * 1024  # of a file that is older than our eyes only so much is read


@dataclass(frozen=True, kw_only=True)
class _Identity:
    """`head`: hash of the first `length` bytes as they were at the last read."""

    device: int
    inode: int
    length: int
    head: int


class Tail:
    """One log. `read` gives what was appended, in whole lines."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        """`whole`: from the beginning, however long the file is."""
        self.path = path
        self.bytes_read = 0
        self._whole = whole
        self._known: _Identity | None = None
        self._offset = 0
        self._rest = b""
        self._size = -1

    def changed(self) -> bool:
        """Whether the file is another one or another size than after the last read. One look at its metadata."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        known = self._known
        return (
            known is None
            or now.st_size != self._size
            or (now.st_dev, now.st_ino) != (known.device, known.inode)
        )

    def read(self, most: int) -> bytes:
        """Whole lines that have come since the last call, from at most so many bytes; b"" when there are none.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            before = self._move_to(descriptor, most)
            data = before + self._take(descriptor, max(0, most - len(before)))
        finally:
            os.close(descriptor)
        return self._lines(data)

    def finish(self) -> bytes:
        """What has no line break yet, for the end of a file."""
        rest, self._rest = self._rest, b""
        return rest

    # -- which file it is

    def _move_to(self, descriptor: int, most: int) -> bytes:
        """Find the place to read at; what is left of a file that was renamed comes back."""
        now = os.fstat(descriptor)
        known, left = self._known, b""
        if known is None:
            self._offset = 0 if self._whole or now.st_size <= _FROM_THE_END else now.st_size - _FROM_THE_END
            self._rest = b""
        elif (now.st_dev, now.st_ino) != (known.device, known.inode):
            left = self._rest_of_renamed(known, most)
            self._begin_anew()
            if left and not left.endswith(b"\n"):
                left += b"\n"
        elif now.st_size < self._offset or self._hash(descriptor, known.length) != known.head:
            self._begin_anew()
        self._size = now.st_size
        length = min(_HEAD, now.st_size)
        if known is None or length != known.length or self._offset == 0 or left:
            self._known = _Identity(
                device=now.st_dev, inode=now.st_ino, length=length, head=self._hash(descriptor, length)
            )
        return left

    def _begin_anew(self) -> None:
        self._offset, self._rest, self._known = 0, b"", None

    def _hash(self, descriptor: int, length: int) -> int:
        head = os.pread(descriptor, length, 0)
        self.bytes_read += len(head)
        return xxhash.xxh64_intdigest(head)

    def _rest_of_renamed(self, known: _Identity, most: int) -> bytes:
        """The end of the file that stood here before, where it lies beside (log.1)."""
        for beside in self.path.parent.glob(f"{self.path.name}*"):
            found = beside.stat()
            if (found.st_dev, found.st_ino) == (known.device, known.inode):
                with beside.open("rb") as file:
                    file.seek(self._offset)
                    data = file.read(most)
                    self.bytes_read += len(data)
                    return self._rest + data
        return self._rest

    # -- what is in it

    def _take(self, descriptor: int, most: int) -> bytes:
        offset, end = self._next_data(descriptor)
        data = os.pread(descriptor, min(most, end - offset), offset)
        self._offset = offset + len(data)
        self.bytes_read += len(data)
        return data.replace(b"\0", b"")

    def _next_data(self, descriptor: int) -> tuple[int, int]:
        """A hole (a log that was truncated under its writer) may be gigabytes of nothing: jump over it."""
        if self._offset >= self._size:
            return self._offset, self._offset
        try:
            offset = os.lseek(descriptor, self._offset, os.SEEK_DATA)
            return offset, os.lseek(descriptor, offset, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return self._size, self._size
            return self._offset, self._size

    def _lines(self, data: bytes) -> bytes:
        if not data:
            return b""
        whole = self._rest + data
        cut = whole.rfind(b"\n") + 1
        self._rest = whole[cut:]
        if len(self._rest) > LONGEST_LINE:  # a progress bar of hours, or one line of megabytes
            shown = self._rest[: self._rest.rfind(b"\r") + 1] or self._rest
            self._rest = self._rest[len(shown) :]
            return whole[:cut] + shown + b"\n"
        return whole[:cut]


def by_turns(tails: Iterable[Tail], most: int, most_of_one: int) -> list[tuple[Tail, bytes]]:
    """What these logs have to say, from at most so many bytes together; of one that cannot be read nothing."""
    found = []
    for tail in tails:
        if most <= 0:
            break
        try:
            data = tail.read(min(most, most_of_one))
        except OSError:  # another time, perhaps
            data = b""
        most -= len(data)
        found.append((tail, data))
    return found
