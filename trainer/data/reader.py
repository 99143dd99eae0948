"""Prepared tokens, read from the node's own disk where a right copy is there, else from where they were prepared."""

import bisect
import json
import logging
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import staged
from contract.config.data import INDEX, TOKENIZER
from contract.sources import FolderSource, Source
from contract.staged import Shard
from trainer.errors import ConfigError

log = logging.getLogger(__name__)


def _read_index(source: Source) -> tuple[dict[str, Any], bytes]:
    if problem := source.problem():
        raise ConfigError(f"[data] path: {problem}")
    content = source.whole(INDEX)
    index: dict[str, Any] = json.loads(content)
    return index, content


class ShardReader:
    """Bytes of shards, whichever copy is there. A copy that is wrong or unreadable is passed over, at any time."""

    def __init__(self, source: Source, staged_at: Path | None) -> None:
        self._source, self._staged_at = source, staged_at
        self._told: set[str] = set()
        self.from_copies = 0
        self.from_source = 0

    def read(self, shard: Shard, start: int, count: int) -> bytes:
        """Bytes [start, start + count) of the shard: exactly these, or an error.

        Raises:
            OSError: neither copy can be read; names the file.
        """
        found = self._from_copy(shard, start, count)
        if found is not None:
            self.from_copies += 1
            return found
        self.from_source += 1
        return self._from_source(shard, start, count)

    def close(self) -> None:
        self._source.close()

    def _from_copy(self, shard: Shard, start: int, count: int) -> bytes | None:
        if self._staged_at is None:
            return None
        path = self._staged_at / shard.file
        try:
            return staged.read(path, shard, start, count)
        except FileNotFoundError:
            return None
        except OSError as error:
            if isinstance(error, staged.DamagedError):
                _remove(path)  # the stager brings a new one
            if shard.file not in self._told:
                self._told.add(shard.file)
                log.warning("%s; reading %s from %s instead", error, shard.file, self._source.where)
            return None

    def _from_source(self, shard: Shard, start: int, count: int) -> bytes:
        try:
            return self._source.read(shard.file, start, count)
        except OSError as error:
            said = f"[data] path: {self._source.where}/{shard.file}: {error.strerror or error}"
            raise OSError(error.errno or 0, said) from error


def _optional(source: Source, name: str) -> bytes | None:
    try:
        return source.whole(name)
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error)


class TokenReader:
    """One split of a prepared directory as samples of a fixed length.

    Sample i covers tokens [i·length, i·length + length + 1): inputs and, shifted by one, targets. `stage` is the node's
    own disk: what is there already, and right, is read from there.
    """

    def __init__(self, source: Source | Path, split: str, *, length: int, stage: Path | None = None) -> None:
        """`source`: a place, or a directory.

        Raises:
            ConfigError: it cannot be trained from.
        """
        source = FolderSource(source) if isinstance(source, Path) else source
        index, content = _read_index(source)
        self._dtype = np.dtype(index["dtype"])
        names = {item["file"] for item in index["splits"][split]["shards"]}
        self._shards = [shard for shard in staged.shards_of(index) if shard.file in names]
        self.kept = (content, _optional(source, TOKENIZER))
        self.bytes = ShardReader(source, None if stage is None else staged.place(stage, content))
        self._counts = [shard.size // self._dtype.itemsize for shard in self._shards]
        self._ends = list(accumulate(self._counts))
        self._length = length
        self.vocab_size = int(index["tokenizer"]["vocab_size"])
        self.samples = (self._ends[-1] - 1) // length
        if self.samples < 1:
            raise ConfigError(
                f"[data] path: {source.where}: {split} has {self._ends[-1]} tokens, a sample needs {length + 1}"
            )

    def spread(self, count: int) -> list[int]:
        """So many sample numbers, evenly spread, repeating when there are fewer samples."""
        return [number * self.samples // count for number in range(count)]

    def sample(self, number: int) -> npt.NDArray[np.int64]:
        """Tokens of one sample, shape (length + 1,).

        Raises:
            OSError: its bytes cannot be read anywhere.
        """
        start = number * self._length
        stop = start + self._length + 1
        found: list[npt.NDArray[Any]] = []
        at = bisect.bisect_right(self._ends, start)
        width = self._dtype.itemsize
        while start < stop:
            base, end = self._ends[at] - self._counts[at], min(stop, self._ends[at])
            data = self.bytes.read(self._shards[at], (start - base) * width, (end - start) * width)
            found.append(np.frombuffer(data, dtype=self._dtype))
            start = end
            at += 1
        return np.concatenate(found).astype(np.int64)
