"""Copies a data set's shards to this node's own disk, one at a time, and keeps them within their room.

Whatever happens, what is there under a shard's name is whole: it was compared with the index before it got the name,
and readers compare again. So a turn can be ended anywhere, and two jobs can share the disk: each copy is made under one
lock. Level-triggered: a turn looks at what is there and does what is missing.
"""

import bisect
import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from contract import files, staged
from contract.config.data import INDEX
from contract.copies.stream import ahead
from contract.sampling import Sampler
from contract.sources import Source
from contract.staged import Shard, Sums

_PIECE = 4 << 20
_READERS = 4  # pieces in flight: a network file system is slow to answer, not slow to send
_TRIES = 3  # of one shard that arrives with other bytes than the index says
_REFUSALS = 3  # by the source in one turn: then it is the server, not a shard
_FREE_SHARE = 0.05  # of the disk stays free: it is not ours alone
_PART = ".part"
_USERS = "users"


class SourceError(Exception):
    """The data set cannot be read, or is not what its index says. The message is for people."""


class NoRoomError(Exception):
    """No room within the cap and the free space that must stay."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of the data set is here. `problem`: why the rest is not, "" when it is on its way or all is here."""

    shards: int = 0
    of: int = 0
    bytes: int = 0
    of_bytes: int = 0
    problem: str = ""

    @property
    def complete(self) -> bool:
        return self.of > 0 and self.shards == self.of


def in_order_of_use(index: dict[str, Any], *, length: int, seed: int, position: int) -> list[Shard]:
    """The shards as a run needs them that goes on at this sampler position; those of no sample soon come last."""
    shards = staged.shards_of(index)
    counts = [int(item["tokens"]) for item in index["splits"]["train"]["shards"]]
    samples = (sum(counts) - 1) // length
    if samples < 1:
        return shards
    ends = list(accumulate(counts))
    sampler = Sampler(samples=samples, seed=seed)
    seen: dict[int, None] = {}
    for at in range(position, position + min(samples, 20 * len(counts))):
        start = sampler.sample(at) * length
        seen.update(dict.fromkeys(_touched(ends, start, start + length + 1)))
        if len(seen) == len(counts):
            break
    return [shards[number] for number in dict.fromkeys([*seen, *range(len(shards))])]


def _touched(ends: Sequence[int], start: int, stop: int) -> Iterator[int]:
    first = bisect.bisect_right(ends, start)
    while first < len(ends) and (first == 0 or ends[first - 1] < stop):
        yield first
        first += 1


Order = Callable[[dict[str, Any]], Sequence[Shard]]


@dataclass(kw_only=True)
class Stager:
    """One data set, one disk. `cap` in bytes, 0 none; `told` hears of each shard that arrives."""

    source: Source
    stage: Path
    order: Order
    cap: int = 0
    told: Callable[[Progress], None] = lambda _: None
    _held: dict[Path, int] = field(default_factory=dict)

    def turn(self) -> Progress:
        """Bring what is missing, as far as there is room. Never raises for what a disk or a server does."""
        progress = Progress()
        try:
            content = self._index()
            shards = self.order(json.loads(content))
            progress = Progress(of=len(shards), of_bytes=sum(shard.size for shard in shards))
            place = self._join(content)
            with self._alone():
                self._give_back(place, shards)
            progress = self._here(place, shards)
            refused: list[str] = []
            for shard in shards:
                try:
                    self._bring(place, shard)
                except SourceError as error:
                    refused.append(str(error))
                    if len(refused) == _REFUSALS:
                        break
                progress = self._here(place, shards)
                self.told(progress)
        except (OSError, NoRoomError, SourceError, ValueError, KeyError, TypeError) as error:
            return replace(progress, problem=self._in_words(error))
        return replace(progress, problem="; ".join(refused))

    def _in_words(self, error: Exception) -> str:
        if isinstance(error, NoRoomError | SourceError):
            return str(error)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return f"the disk of {self.stage} is full"
        if isinstance(error, OSError):
            return f"{error.filename or self.stage}: {error.strerror or error}"
        return f"{self.source.where}/{INDEX} cannot be used: {type(error).__name__}: {error}"

    def _index(self) -> bytes:
        try:
            return self.source.whole(INDEX)
        except OSError as error:
            raise SourceError(f"{error.filename or self.source.where}: {error.strerror or error}") from error

    def _here(self, place: Path, shards: Sequence[Shard]) -> Progress:
        here = [shard for shard in shards if _is_here(place / shard.file, shard)]
        return Progress(
            shards=len(here),
            of=len(shards),
            bytes=sum(shard.size for shard in here),
            of_bytes=sum(shard.size for shard in shards),
        )

    def _join(self, content: bytes) -> Path:
        """The data set's directory, with our mark on it: nobody throws out what is in use."""
        place = staged.place(self.stage, content)
        place.parent.mkdir(
            mode=0o700, exist_ok=True
        )  # not the stage itself: an absent disk must not become a folder
        with self._alone():
            place.mkdir(mode=0o700, exist_ok=True)
            if place not in self._held:
                self._held[place] = os.open(place / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._held[place], fcntl.LOCK_SH)
        return place

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else of this user changes anything on this disk. Waits: others hold it for one shard."""
        descriptor = os.open(staged.home(self.stage) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _bring(self, place: Path, shard: Shard) -> None:
        if _is_here(place / shard.file, shard):
            return
        with self._alone():
            if _is_here(place / shard.file, shard):  # another job of the same data was quicker
                return
            for left in staged.home(self.stage).glob(f"*/*{_PART}"):  # of somebody who was killed
                left.unlink(missing_ok=True)
            self._make_room(place, staged.whole(shard.size))
            _copy(self.source, place / shard.file, shard)

    # -- room ------------------------------------------------------------------------------------------------

    def _make_room(self, place: Path, need: int) -> None:
        while problem := self._lacks(need):
            if not self._throw_out_unused(place):
                raise NoRoomError(problem)

    def _lacks(self, need: int, share: float = _FREE_SHARE) -> str:
        home = staged.home(self.stage)
        taken = sum(size for _, size, _ in _copies(home))
        if self.cap and taken + need > self.cap:
            return f"the cap of {self.cap / 1e9:.1f} GB ([node] stage_gb) is reached"
        disk = os.statvfs(home)
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        if free - need < share * total:
            return f"{self.stage} has {free / 1e9:.1f} GB free, and {share:.0%} of the disk stay free"
        return ""

    def _give_back(self, place: Path, shards: Sequence[Shard]) -> None:
        """The disk fills from elsewhere, or the cap was lowered: unused copies go first, then ours that come last."""
        ours = [shard for shard in shards if _is_here(place / shard.file, shard)]
        while self._lacks(
            0, _FREE_SHARE / 2
        ):  # less than what stops copying: else each turn would bring it back
            if self._throw_out_unused(place):
                continue
            if not ours:
                return
            (place / ours.pop().file).unlink(missing_ok=True)

    def _throw_out_unused(self, mine: Path) -> bool:
        """The oldest copy of a data set that no job uses. Readers that have it open keep what they read."""
        for _, _, path in sorted(_copies(staged.home(self.stage))):
            if path.parent != mine and not _in_use(path.parent):
                path.unlink(missing_ok=True)
                return True
        return False


def _in_use(place: Path) -> bool:
    return files.lock_is_shared(place / _USERS)


def _is_here(path: Path, shard: Shard) -> bool:
    try:
        return path.stat().st_size == staged.whole(shard.size)
    except FileNotFoundError:
        return False


def _copies(home: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of its making, size, path) of everything that takes room."""
    for path in home.glob("*/*"):
        if path.name != _USERS:
            with contextlib.suppress(FileNotFoundError):
                seen = path.stat()
                yield seen.st_mtime, seen.st_size, path


def _copy(source: Source, target: Path, shard: Shard) -> None:
    part = target.with_name(target.name + _PART)
    try:
        for _ in range(_TRIES):
            sums = Sums(shard)
            with part.open("wb", buffering=0) as out:
                for data in _contents(source, shard):
                    sums.update(data)
                    _write(out.fileno(), data)
                _write(out.fileno(), sums.trailer())
                os.fsync(out.fileno())
            if sums.xxh3 == shard.xxh3:
                part.replace(target)
                return
    finally:
        part.unlink(missing_ok=True)
    raise SourceError(
        f"{source.where}/{shard.file} is not what its index says: another checksum, {_TRIES} times"
    )


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _contents(source: Source, shard: Shard) -> Iterator[bytes]:
    def read(offset: int) -> bytes:
        try:
            return source.read(shard.file, offset, min(_PIECE, shard.size - offset))
        except OSError as error:
            raise SourceError(f"{source.where}/{shard.file}: {error.strerror or error}") from error

    try:
        for _, data in ahead(_READERS, read, range(0, shard.size, _PIECE)):
            yield data
    finally:
        source.close()
