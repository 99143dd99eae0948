"""Prepared tokens, memory-mapped."""

import bisect
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import files
from contract.config.data import INDEX, data_problem
from trainer.errors import ConfigError


def read_index(path: Path) -> dict[str, Any]:
    """The index of a prepared directory.

    Raises:
        ConfigError: the directory cannot be trained from.
    """
    if problem := data_problem(path):
        raise ConfigError(f"[data] path: {problem}")
    index = files.read_json(path / INDEX)
    assert index is not None
    return index


class TokenReader:
    """One split of a prepared directory as samples of a fixed length.

    Sample i covers tokens [i·length, i·length + length + 1): inputs and, shifted by one, targets.
    """

    def __init__(self, path: Path, split: str, *, length: int) -> None:
        index = read_index(path)
        self._shards = [
            np.memmap(path / shard["file"], dtype=index["dtype"], mode="r")
            for shard in index["splits"][split]["shards"]
        ]
        self._ends = list(accumulate(len(shard) for shard in self._shards))
        self._length = length
        self.vocab_size = int(index["tokenizer"]["vocab_size"])
        self.samples = (self._ends[-1] - 1) // length
        if self.samples < 1:
            raise ConfigError(
                f"[data] path: {path}: {split} has {self._ends[-1]} tokens, a sample needs {length + 1}"
            )

    def sample(self, number: int) -> npt.NDArray[np.int64]:
        """Tokens of one sample, shape (length + 1,)."""
        start = number * self._length
        stop = start + self._length + 1
        found: list[npt.NDArray[Any]] = []
        shard = bisect.bisect_right(self._ends, start)
        while start < stop:
            base = self._ends[shard] - len(self._shards[shard])
            found.append(self._shards[shard][start - base : stop - base])
            start = self._ends[shard]
            shard += 1
        return np.concatenate(found).astype(np.int64)
