"""Copies in a directory: each is a checkpoint directory like the original, which can be moved back by hand."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract import files, manifest
from contract.copies.store import Piece, StoreError, Trouble
from contract.layout import parse_checkpoint_name
from contract.manifest import Shard

_TROUBLES = {
    errno.ENOSPC: Trouble.FULL,
    errno.EDQUOT: Trouble.FULL,
    errno.EROFS: Trouble.READ_ONLY,
    errno.EACCES: Trouble.REFUSED,
    errno.EPERM: Trouble.REFUSED,
    errno.ENOENT: Trouble.MISSING,
}


@dataclass(frozen=True, kw_only=True)
class FolderHeld:
    """Files as they are: a shard grows piece by piece, each synced before the next."""

    path: Path

    def has(self, piece: Piece, data: bytes) -> bool:
        try:
            with (self.path / piece.shard.path).open("rb") as file:
                file.seek(piece.offset)
                return file.read(len(data)) == data and (bool(data) or piece.shard.size == 0)
        except FileNotFoundError:
            return False

    def flaws(self, shards: Sequence[Shard]) -> str:
        """Read back: a second directory is near, and a disk may have lied."""
        with _told():
            for shard in shards:
                path = self.path / shard.path
                if not path.exists() or path.stat().st_size != shard.size:
                    return f"{shard.path} is missing or has another size"
                if manifest.digest_file(path) != shard.xxh3:
                    return f"{shard.path} has another checksum than was written"
        return ""


class FolderStore:
    """The copies of one run in `root`/`run_id`. `root` must exist: an unmounted disk is not written under."""

    workers = 1

    def __init__(self, root: Path, run_id: str) -> None:
        self._root, self._path = root, root / run_id
        self.where = str(self._path)

    def must_be_known(self) -> None:
        """To be asked where copies have been made before: under a mount point lies an empty directory.

        Raises:
            StoreError: this run's directory is gone.
        """
        if not self._path.is_dir():
            raise StoreError(
                Trouble.MISSING,
                f"{self._path} is gone, and it held copies: is its disk mounted? (emptied on purpose: mkdir it)",
            )

    def names(self) -> list[str]:
        with _told():
            self._must_be_there()
            if not self._path.exists():
                return []
            return [entry.name for entry in self._path.iterdir() if parse_checkpoint_name(entry.name)]

    def manifest(self, name: str) -> bytes | None:
        with _told():
            self._must_be_there()
            return files.read_bytes(self._path / name / manifest.NAME)

    def held(self, name: str) -> FolderHeld:
        with _told():
            self._must_be_there()
        return FolderHeld(path=self._path / name)

    def write(self, name: str, piece: Piece, data: bytes) -> None:
        path = self._path / name / piece.shard.path
        with _told():
            self._must_be_there()
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as file:
                file.truncate(piece.offset)
                file.seek(piece.offset)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if piece.number == 0:
                files.sync_directory(path.parent)

    def read(self, name: str, piece: Piece) -> bytes:
        with _told(), (self._path / name / piece.shard.path).open("rb") as file:
            file.seek(piece.offset)
            return file.read(piece.size)

    def publish(self, name: str, manifest_data: bytes) -> None:
        with _told():
            self._must_be_there()
            files.sync_directory(self._path)
            files.replace_file(self._path / name / manifest.NAME, manifest_data)

    def retire(self, name: str) -> None:
        with _told():
            self._must_be_there()
            manifest.retire(self._path / name)

    def clear(self, name: str) -> None:
        with _told():
            shutil.rmtree(self._path / name)

    def _must_be_there(self) -> None:
        if not self._root.is_dir():
            raise StoreError(Trouble.MISSING, f"{self._root} is not there: is its disk mounted?")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(_TROUBLES.get(error.errno or 0, Trouble.UNKNOWN), str(error)) from None
