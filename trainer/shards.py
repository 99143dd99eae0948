"""Writing the files of a checkpoint: hashed while they are written, synced, errors kept instead of raised.

DeepSpeed's save has barriers inside. An exception in one rank's write would leave the others waiting there until
the communicator's time limit, so it is remembered, and all ranks learn of it when the save is through.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from contract import files
from contract.manifest import Shard


class _HashingFile:
    """A file that hashes what passes, and tells that it moves."""

    def __init__(self, file: BinaryIO, moved: Callable[[], None]) -> None:
        self._file = file
        self._moved = moved
        self.state = xxhash.xxh3_64()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._moved()
        self.state.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()


class ShardWriter(TorchCheckpointEngine):  # type: ignore[misc]
    """DeepSpeed's way to disk, replaced: same files, with checksums."""

    def __init__(self, moved: Callable[[], None]) -> None:
        super().__init__()
        self.name = "ciuic"
        self._moved = moved
        self._root = Path()
        self._shards: list[Shard] = []
        self._error = ""

    def start(self, root: Path) -> None:
        """Begin a checkpoint in this directory; forgets the previous one."""
        self._root, self._shards, self._error = root, [], ""

    def finish(self) -> tuple[list[Shard], str]:
        """(files written by this rank, what went wrong or "")."""
        return self._shards, self._error

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory of the checkpoint."""
        self._keep_error(lambda: os.makedirs(path, exist_ok=exist_ok))  # noqa: PTH103

    def save(self, state_dict: Any, path: str) -> None:
        """Write one file durably."""
        if not self._error:
            self._keep_error(lambda: self._write(state_dict, Path(path)))

    def _keep_error(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # reported by all ranks together, see the module's text
            self._error = f"{type(error).__name__}: {error}"

    def _write(self, state: Any, path: Path) -> None:
        with path.open("wb") as file:
            hashing = _HashingFile(file, self._moved)
            torch.save(state, hashing)
            file.flush()
            os.fsync(file.fileno())
        files.sync_directory(path.parent)
        self._shards.append(
            Shard(
                path=path.relative_to(self._root).as_posix(),
                size=hashing.size,
                xxh3=hashing.state.hexdigest(),
            )
        )

    def load(self, path: str, map_location: Any = None) -> Any:
        """Read one file. Its checksum was compared with the manifest's when the checkpoint was chosen."""
        self._moved()
        return torch.load(path, map_location=map_location, weights_only=False)
