"""Reading copies: what is there, whether it is right, and bringing one back into the run directory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from contract import files, manifest
from contract.copies.pace import Pace
from contract.copies.store import PIECE, Piece, Store, StoreError, Trouble, pieces
from contract.copies.stream import ahead
from contract.layout import RunDir, checkpoint_name, parse_checkpoint_name
from contract.manifest import Checkpoint, Manifest, ManifestError, Shard

Moved = Callable[[int], None]
"""Told how many bytes more are through: progress."""
_TRIES = 3  # of one shard that arrives with other bytes than it should


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A checkpoint that is back: how much came from the copy, how much was still right here."""

    checkpoint: Checkpoint
    fetched: int
    kept: int


def examine(store: Store, name: str, *, deep: bool, moved: Moved = lambda _: None) -> Checkpoint:
    """Look at one copy as `manifest.examine` looks at a checkpoint; `path` is for people only.

    Raises:
        StoreError: the place cannot be asked (a copy that is not right is a reason, not an error).
    """
    step, attempt, generation = parse_checkpoint_name(name) or (0, 0, 0)
    found: Manifest | None = None
    try:
        found = _manifest(store, name)[0]
        reason = store.held(name).flaws(found.shards)
        if deep and not reason:
            reason = _wrong(store, name, found.shards, moved)
    except ManifestError as error:
        reason = str(error)
    return Checkpoint(
        path=Path(store.where) / name,
        step=step,
        attempt=attempt,
        generation=generation,
        manifest=found,
        reason=reason,
    )


def fetch(run: RunDir, name: str, store: Store, *, moved: Moved, pace: Pace) -> Fetched:
    """Bring a copy back, byte for byte what the manifest says. Shards that are right here already stay.

    Until every byte was compared, nothing here changes but files beside the shards; then the old manifest goes
    first and the new one comes last. An interrupted fetch goes on with the shards that it has.

    Raises:
        StoreError: the copy cannot be read or is damaged.
        ManifestError: it does not exist or belongs to another checkpoint.
        OSError: it cannot be written here.
    """
    wanted, data = _manifest(store, name)
    if wanted.run != run.run_id:
        raise ManifestError(f"{store.where}{name} is of run {wanted.run}")
    directory = run.checkpoints / name
    directory.mkdir(parents=True, exist_ok=True)
    wrong = [shard for shard in wanted.shards if not _right(directory / shard.path, shard, moved)]
    for shard in wrong:
        aside = _aside(directory, shard)
        aside.parent.mkdir(parents=True, exist_ok=True)
        if not _right(aside, shard, moved):
            _download(store, name, shard, aside, moved=moved, pace=pace)
    manifest.retire(directory)
    for shard in wrong:
        _aside(directory, shard).replace(directory / shard.path)
        files.sync_directory((directory / shard.path).parent)
    files.sync_directory(run.checkpoints)
    files.replace_file(directory / manifest.NAME, data)
    return Fetched(
        checkpoint=manifest.examine(directory, deep=False),
        fetched=len(wrong),
        kept=len(wanted.shards) - len(wrong),
    )


def _manifest(store: Store, name: str) -> tuple[Manifest, bytes]:
    data = store.manifest(name)
    if data is None:
        raise ManifestError("no manifest: the copy is not complete")
    found = manifest.decode(data)
    if checkpoint_name(found.step, found.attempt, found.generation) != name:
        raise ManifestError("the manifest belongs to another checkpoint")
    return found, data


def _aside(directory: Path, shard: Shard) -> Path:
    path = directory / shard.path
    return path.with_name(f".{path.name}.{shard.xxh3}")


def _right(path: Path, shard: Shard, moved: Moved) -> bool:
    try:
        if path.stat().st_size != shard.size:
            return False
        state = xxhash.xxh3_64()
        with path.open("rb") as file:
            while data := file.read(PIECE):
                state.update(data)
                moved(len(data))
    except OSError:  # not there, or the disk cannot read it any more: it is replaced
        return False
    return state.hexdigest() == shard.xxh3


def _download(store: Store, name: str, shard: Shard, path: Path, *, moved: Moved, pace: Pace) -> None:
    for last in (*(False for _ in range(_TRIES - 1)), True):
        state = xxhash.xxh3_64()
        with path.open("wb") as file:
            for data in _contents(store, name, shard, pace):
                state.update(data)
                file.write(data)
                moved(len(data))
            file.flush()
            os.fsync(file.fileno())
        if state.hexdigest() == shard.xxh3:
            return
        path.unlink()
        if last:
            raise StoreError(
                Trouble.CORRUPT,
                f"{store.where}{name}: {shard.path} comes with another checksum, {_TRIES} times",
            )


def _wrong(store: Store, name: str, shards: tuple[Shard, ...], moved: Moved) -> str:
    pace = Pace(0.0, clock=float, wait=float)
    for shard in shards:
        state = xxhash.xxh3_64()
        for data in _contents(store, name, shard, pace):
            state.update(data)
            moved(len(data))
        if state.hexdigest() != shard.xxh3:
            return f"{shard.path} has another checksum than the manifest says"
    return ""


def _contents(store: Store, name: str, shard: Shard, pace: Pace) -> Iterator[bytes]:
    def read(piece: Piece) -> bytes:
        pace.take(piece.size)
        return store.read(name, piece)

    for _, data in ahead(store.workers, read, pieces(shard)):
        yield data
