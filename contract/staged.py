"""A data set's shards on a node's own disk: what the stager writes there, and how a reader knows that it is right.

One file a shard: its bytes, then a checksum of each block. A reader compares the blocks that it reads, every time, so
that neither a worn disk nor a power cut nor a half written file can ever become a sample. Files come by rename and go
by unlink; nothing is changed in place.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import xxhash

BLOCK = 64 << 10
"""Bytes under one checksum: a sample of 4,096 tokens touches one or two."""
VARIABLE = "CIUIC_STAGE"
"""Tells a worker where copies may be."""
_SUM = 8
_MASK = (1 << 64) - 1


class DamagedError(OSError):
    """The copy is there and is not what was written."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard as the index of its data set has it; `xxh3` is the 64-bit hash in hex."""

    file: str
    size: int
    xxh3: str


def shards_of(index: Mapping[str, Any]) -> list[Shard]:
    """All shards of an index, those of the training split first.

    Raises:
        KeyError, TypeError, ValueError: the index lacks a size or a checksum.
    """
    found = [
        Shard(file=str(item["file"]), size=int(item["bytes"]), xxh3=str(item["xxh3"]))
        for split in ("train", "validation")
        for item in index["splits"][split]["shards"]
    ]
    if wrong := [shard.file for shard in found if Path(shard.file).name != shard.file]:
        raise ValueError(f"{wrong[0]} is not a plain name")
    return found


def directory(setting: str, environment: Mapping[str, str]) -> Path | None:
    """Where [node] stage points on this node, its variables replaced; None when nothing is staged.

    Raises:
        ValueError: a variable is not set, or the path is not absolute.
    """
    if not setting:
        return None
    try:
        path = Path(Template(setting).substitute(environment))
    except KeyError as error:
        raise ValueError(f"[node] stage = {setting}: {error.args[0]} is not set on this node") from None
    if not path.is_absolute():
        raise ValueError(f"[node] stage = {setting}: must be an absolute path")
    return path


def home(stage: Path) -> Path:
    """What this user has under a stage directory."""
    return stage / f"ciuic-{os.getuid()}"


def place(stage: Path, index: bytes) -> Path:
    """The directory of one data set. Another index is another data set: copies never outlive a change at the source."""
    return home(stage) / xxhash.xxh3_128_hexdigest(index)


def whole(size: int) -> int:
    """Bytes of the copy of a shard of this size."""
    return size + _SUM * -(-size // BLOCK)


class Sums:
    """Takes a shard's bytes in order; knows the checksum of all and those of the blocks."""

    def __init__(self, shard: Shard) -> None:
        self.size = 0
        self._all = xxhash.xxh3_64()
        self._seed = _seed(shard)
        self._rest = b""
        self._sums: list[bytes] = []

    def update(self, data: bytes) -> None:
        self._all.update(data)
        self.size += len(data)
        data = self._rest + data if self._rest else data
        full = len(data) - len(data) % BLOCK
        view = memoryview(data)
        for start in range(0, full, BLOCK):
            self._add(view[start : start + BLOCK])
        self._rest = bytes(view[full:])

    def _add(self, block: bytes | memoryview) -> None:
        self._sums.append(_sum(block, self._seed + len(self._sums)))

    def trailer(self) -> bytes:
        """What follows the bytes in the copy. Nothing can be added afterwards."""
        if self._rest:
            self._add(self._rest)
            self._rest = b""
        return b"".join(self._sums)

    @property
    def xxh3(self) -> str:
        return str(self._all.hexdigest())


def read(path: Path, shard: Shard, start: int, count: int) -> bytes:
    """Bytes [start, start + count) of the shard, each block of them compared with its checksum.

    Opened for each read: a descriptor that is kept would keep the space of a copy that was thrown out.

    Raises:
        FileNotFoundError: there is no copy.
        DamagedError: the copy is not what was written.
        OSError: the disk cannot read it.
    """
    first, last = start // BLOCK, (start + count - 1) // BLOCK
    begin, end = first * BLOCK, min((last + 1) * BLOCK, shard.size)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != whole(shard.size):
            raise DamagedError(f"{path} has another size than it was written with")
        data = read_exactly(descriptor, end - begin, begin)
        sums = read_exactly(descriptor, _SUM * (last - first + 1), shard.size + _SUM * first)
    finally:
        os.close(descriptor)
    seed, view = _seed(shard), memoryview(data)
    for number in range(first, last + 1):
        at = (number - first) * BLOCK
        if (
            _sum(view[at : at + BLOCK], seed + number)
            != sums[_SUM * (number - first) : _SUM * (number - first + 1)]
        ):
            raise DamagedError(f"{path}: block {number} is not what was written")
    return data[start - begin : start - begin + count]


def read_exactly(descriptor: int, count: int, offset: int) -> bytes:
    """So many bytes from there, never fewer.

    Raises:
        OSError: the file ends before, or cannot be read.
    """
    found = os.pread(descriptor, count, offset)
    while len(found) < count:
        more = os.pread(descriptor, count - len(found), offset + len(found))
        if not more:
            raise OSError(f"ends after {offset + len(found)} bytes, {offset + count} were expected")
        found += more
    return found


def _seed(shard: Shard) -> int:
    """Blocks of another shard, or of another place in this one, must not pass."""
    return int(shard.xxh3, 16)


def _sum(block: bytes | memoryview, seed: int) -> bytes:
    return int(xxhash.xxh3_64_intdigest(block, seed=seed & _MASK)).to_bytes(_SUM, "little")
