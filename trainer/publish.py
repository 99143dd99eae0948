"""From bytes to a checkpoint that counts. No torch here: what must survive a kill at any system call is this file.

Order: shards, each synced; then, once all ranks have theirs, the manifest; then the removal of what retention gives up.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import xxhash

from contract import files, manifest
from contract.layout import RunDir
from contract.manifest import Manifest, Shard
from contract.retention import Keep, Kept, doomed

_UNMOUNTED = "its file system is not mounted (any more)"
_PIECE = 8 << 20  # written between two signs of life
_SYNC_EVERY = 64 << 20  # bounds what the kernel holds back, and so the longest silence of a slow file system


class FencedError(Exception):
    """A later generation has started: this one's checkpoints do not count any more."""


class ShardFile:
    """A file that hashes what passes, syncs now and then, and tells that it moves."""

    def __init__(self, file: BinaryIO, moved: Callable[[], None]) -> None:
        self._file = file
        self._moved = moved
        self._unsynced = 0
        self._state = xxhash.xxh3_64()
        self.size = 0

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE]
            self._state.update(piece)
            self._file.write(piece)
            self._moved()
            self._unsynced += len(piece)
            if self._unsynced >= _SYNC_EVERY:
                self._file.flush()
                os.fdatasync(self._file.fileno())
                self._moved()
                self._unsynced = 0
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        self._file.flush()

    @property
    def xxh3(self) -> str:
        return self._state.hexdigest()


class Place:
    """The directory that holds all checkpoints of a run, and the file system that it lies on.

    When a mount vanishes, the empty directory under it is still there: what is written into it is on the wrong disk, and
    hidden as soon as the mount is back.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._device = directory.stat().st_dev
        self._known: Path | None = None

    def remember(self, checkpoint: Path) -> None:
        """A checkpoint that is known to exist here."""
        self._known = checkpoint

    def check(self) -> None:
        """Nothing, when this is the place that it was.

        Raises:
            OSError: it is gone, or another one. A file system that was mounted anew and has our checkpoint is the same.
        """
        try:
            device = self._directory.stat().st_dev
        except FileNotFoundError:
            raise FileNotFoundError(f"{self._directory} is not there: {_UNMOUNTED}") from None
        if device != self._device and (self._known is None or not (self._known / manifest.NAME).exists()):
            raise FileNotFoundError(
                f"{self._directory} lies on another file system than before: {_UNMOUNTED}"
            )
        self._device = device


def write_shard(
    directory: Path, name: str, fill: Callable[[ShardFile], object], moved: Callable[[], None]
) -> Shard:
    """Write one file of a checkpoint durably; `fill` writes the content.

    Raises:
        OSError: the file system refused; the file may be there in part.
    """
    path = directory / name
    with path.open("wb") as file:
        shard = ShardFile(file, moved)
        fill(shard)
        file.flush()
        os.fsync(file.fileno())
    moved()
    files.sync_directory(directory)
    return Shard(path=name, size=shard.size, xxh3=shard.xxh3)


def publish(run: RunDir, content: Manifest) -> None:
    """Make the checkpoint exist. Every shard of every rank must be on disk.

    Raises:
        FencedError: a later generation has recorded its resume.
        OSError: the file system refused; the checkpoint does not exist.
    """
    refuse_if_fenced(run, (content.attempt, content.generation))
    files.sync_directory(run.checkpoints)
    manifest.publish(run.checkpoint(content.step, content.attempt, content.generation), content)


def refuse_if_fenced(run: RunDir, at: tuple[int, int]) -> None:
    """See `publish`."""
    later = max((key for key in manifest.read_resumes(run) if key > at), default=None)
    if later is not None:
        raise FencedError(f"generation {later[1]} of attempt {later[0]} has started since: fenced")


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What a removal did: names removed, and what went wrong or ""."""

    removed: tuple[str, ...]
    problem: str = ""


def prune(run: RunDir, keep: Keep, *, at: tuple[int, int]) -> Pruned:
    """Remove what retention gives up, manifest first. Never raises OSError: a failed removal costs room, not training."""
    removed: list[str] = []
    try:
        refuse_if_fenced(run, at)
        resumes = manifest.read_resumes(run)
        found = []
        for directory in manifest.directories(run):
            seen = manifest.examine(directory, deep=False)
            writer = (seen.attempt, seen.generation)
            found.append(
                Kept(
                    name=directory.name,
                    step=seen.step,
                    writer=writer,
                    counts=seen.valid and manifest.in_lineage(seen.step, writer, resumes),
                    val_loss=seen.manifest.val_loss if seen.manifest else None,
                )
            )
        for name in doomed(found, keep, newest_writer=at):
            manifest.remove(run.checkpoints / name)
            removed.append(name)
    except (OSError, ValueError, FencedError) as error:
        return Pruned(removed=tuple(removed), problem=str(error))
    return Pruned(removed=tuple(removed))
