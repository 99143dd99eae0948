"""Prepared tokens, read from the node's own disk where a right copy is there, else from where they were prepared."""

import bisect
import json
import logging
import os
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import staged
from contract.config.data import INDEX, data_problem
from contract.staged import Shard
from trainer.errors import ConfigError

log = logging.getLogger(__name__)

_OPEN = 128  # files of the source kept open: opening one again costs a round trip on a network file system


def read_index(path: Path) -> dict[str, Any]:
    """The index of a prepared directory.

    Raises:
        ConfigError: the directory cannot be trained from.
    """
    return _read_index(path)[0]


def _read_index(path: Path) -> tuple[dict[str, Any], bytes]:
    if problem := data_problem(path):
        raise ConfigError(f"[data] path: {problem}")
    content = (path / INDEX).read_bytes()
    index: dict[str, Any] = json.loads(content)
    return index, content


class ShardReader:
    """Bytes of shards, whichever copy is there. A copy that is wrong or unreadable is passed over, at any time."""

    def __init__(self, source: Path, staged_at: Path | None) -> None:
        self._source, self._staged_at = source, staged_at
        self._files: OrderedDict[str, int] = OrderedDict()
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
        while self._files:
            os.close(self._files.popitem()[1])

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
                log.warning("%s; reading %s from %s instead", error, shard.file, self._source)
            return None

    def _from_source(self, shard: Shard, start: int, count: int) -> bytes:
        for last in (False, True):
            try:
                return staged.read_exactly(self._opened(shard), count, start)
            except OSError as error:
                self._forget(
                    shard
                )  # replaced by the same on the server, or a stale handle: once more, opened afresh
                if last:
                    raise OSError(
                        error.errno or 0,
                        f"[data] path: {self._source / shard.file}: {error.strerror or error}",
                    ) from error
        raise AssertionError

    def _opened(self, shard: Shard) -> int:
        if shard.file in self._files:
            self._files.move_to_end(shard.file)
            return self._files[shard.file]
        self._files[shard.file] = os.open(self._source / shard.file, os.O_RDONLY | os.O_CLOEXEC)
        if len(self._files) > _OPEN:
            os.close(self._files.popitem(last=False)[1])
        return self._files[shard.file]

    def _forget(self, shard: Shard) -> None:
        if shard.file in self._files:
            os.close(self._files.pop(shard.file))


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

    def __init__(self, path: Path, split: str, *, length: int, stage: Path | None = None) -> None:
        index, content = _read_index(path)
        self._dtype = np.dtype(index["dtype"])
        names = {item["file"] for item in index["splits"][split]["shards"]}
        self._shards = [shard for shard in staged.shards_of(index) if shard.file in names]
        self.bytes = ShardReader(path, None if stage is None else staged.place(stage, content))
        self._counts = [shard.size // self._dtype.itemsize for shard in self._shards]
        self._ends = list(accumulate(self._counts))
        self._length = length
        self.vocab_size = int(index["tokenizer"]["vocab_size"])
        self.samples = (self._ends[-1] - 1) // length
        if self.samples < 1:
            raise ConfigError(
                f"[data] path: {path}: {split} has {self._ends[-1]} tokens, a sample needs {length + 1}"
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
