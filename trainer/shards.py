"""DeepSpeed's way to disk, replaced: its save hands states over, and ours are the copy, the writing and the errors.

DeepSpeed's save has barriers inside. An exception in one rank's part would leave the others waiting there until
the communicator's time limit, so it is remembered, and all ranks learn of it when the save is through.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from contract.manifest import Shard
from trainer.publish import Place, write_shard
from trainer.snapshot import HostCopies


@dataclass(frozen=True, kw_only=True)
class Content:
    """One file to write: a state for torch.save, or bytes as they are."""

    name: str
    state: Any

    def fill(self, file: Any) -> None:
        if isinstance(self.state, bytes):
            file.write(self.state)
        else:
            torch.save(self.state, file)


class ShardWriter(TorchCheckpointEngine):  # type: ignore[misc]
    """Collects what one rank saves, as copies when it is written in the background; then writes it with checksums."""

    def __init__(self, device: torch.device, moved: Callable[[], None], *, copies: bool) -> None:
        super().__init__()
        self.name = "ciuic"
        self.place: Place | None = None
        self._moved = moved
        self._copies = HostCopies(device) if copies else None
        self._root = Path()
        self._contents: list[Content] = []
        self._error = ""
        self._moved_at = 0.0
        self._longest_s = 0.0
        self.writing = False

    def start(self, root: Path) -> None:
        """Begin a checkpoint in this directory; forgets the previous one."""
        self._root, self._contents, self._error = root, [], ""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: the file system is not touched before the writing."""

    def preserves_storage_sharing(self) -> bool:
        """False tells DeepSpeed that it need not copy tensors out of their common storage: we write no storages."""
        return self._copies is None

    def save(self, state_dict: Any, path: str) -> None:
        """Take over one file of this rank."""
        if self._error:
            return
        name = Path(path).relative_to(self._root).as_posix()
        try:
            state = self._copies.take(name, state_dict, self._moved) if self._copies else state_dict
        except Exception as error:  # reported by all ranks together, see the module's text
            self._error = f"{type(error).__name__}: {error}"
            return
        self._contents.append(Content(name=name, state=state))

    def write(self) -> tuple[list[Shard], str]:
        """Write everything durably. Returns (files written by this rank, what went wrong or "")."""
        shards: list[Shard] = []
        self._moved_at, self.writing = time.monotonic(), True
        try:
            if not self._error:
                assert self.place is not None
                self.place.check()
                self._root.mkdir(exist_ok=True)
                shards = [
                    write_shard(self._root, content.name, content.fill, self._wrote)
                    for content in self._contents
                ]
        except Exception as error:  # see the module's text
            self._error = f"{type(error).__name__}: {error}"
        finally:
            self.writing = False
            self._contents = []
        return shards, self._error

    @property
    def standstill_s(self) -> float:
        """Seconds since the last sign of life of the writing; 0 when nothing is being written."""
        return time.monotonic() - self._moved_at if self.writing else 0.0

    @property
    def longest_s(self) -> float:
        """The longest standstill that has passed by itself so far."""
        return self._longest_s

    def _wrote(self) -> None:
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - self._moved_at)
        self._moved_at = now

    def load(self, path: str, map_location: Any = None) -> Any:
        """Read one file. Its checksum was compared with the manifest's when the checkpoint was chosen."""
        self._moved()
        return torch.load(path, map_location=map_location, weights_only=False)
