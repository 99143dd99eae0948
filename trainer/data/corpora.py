"""Several prepared directories as one reader. Samples are numbered through, one directory after the other."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from contract.config import RunConfig
from contract.config.data import Data, other_tokenizers
from contract.sampling import Sampler, sampler_of
from contract.sources import open_source
from trainer.data.reader import TokenReader
from trainer.errors import ConfigError

log = logging.getLogger(__name__)


class Reader(Protocol):
    """What samples are read from."""

    samples: int
    vocab_size: int

    def sample(self, number: int) -> npt.NDArray[np.int64]:
        """Tokens of one sample, shape (length + 1,)."""
        ...

    def spread(self, count: int) -> list[int]:
        """So many sample numbers, evenly spread."""
        ...


class Corpora:
    """One split of several directories that have the same tokenizer."""

    def __init__(self, readers: Sequence[TokenReader], weights: Sequence[float]) -> None:
        self._readers = readers
        self._weights = weights
        self.counts = [reader.samples for reader in readers]
        self.samples = sum(self.counts)
        self.vocab_size = readers[0].vocab_size

    def sample(self, number: int) -> npt.NDArray[np.int64]:
        """Tokens of one sample, shape (length + 1,)."""
        for reader in self._readers:
            if number < reader.samples:
                return reader.sample(number)
            number -= reader.samples
        raise IndexError(number)

    def spread(self, count: int) -> list[int]:
        """So many sample numbers: of each directory its share by weight, evenly spread over it."""
        found: list[int] = []
        before, first = 0.0, 0
        for reader, weight in zip(self._readers, self._weights, strict=True):
            share = weight * count / sum(self._weights)
            mine = round(before + share) - round(before)
            found += [first + number for number in reader.spread(mine)]
            before, first = before + share, first + reader.samples
        return found


def open_split(config: RunConfig, split: str, stage: Path | None) -> Reader:
    """The reader of this split: "train" or "validation". `stage` is the node's own disk.

    Raises:
        ConfigError: a directory cannot be trained from.
    """
    sources = config.data.sources
    readers = open_each(config.data, split, length=config.batch.sequence_length, stage=stage)
    if wrong := other_tokenizers([its.path for its in sources], [reader.kept for reader in readers]):
        raise ConfigError(f"[data] corpora: {wrong[0]}")
    return readers[0] if len(readers) == 1 else Corpora(readers, [its.weight for its in sources])


def open_each(data: Data, split: str, *, length: int, stage: Path | None = None) -> list[TokenReader]:
    """A reader for each directory.

    Raises:
        ConfigError: one cannot be trained from.
    """
    return [
        TokenReader(open_source(its.path, data.store, os.environ), split, length=length, stage=stage)
        for its in data.sources
    ]


def order_of(config: RunConfig, reader: Reader, skip_windows: tuple[tuple[int, int], ...]) -> Sampler:
    """In which order the run takes the samples of the training split."""
    sources = config.data.sources
    counts = reader.counts if isinstance(reader, Corpora) else [reader.samples]
    if len(counts) > 1:
        _tell(config, counts)
    return sampler_of(
        counts, [its.weight for its in sources], seed=config.run.seed, skip_windows=skip_windows
    )


def _tell(config: RunConfig, counts: Sequence[int]) -> None:
    """What of each corpus the run will have read at its end: epochs that nobody planned are seen before."""
    run, batch, sources = config.run, config.batch, config.data.sources
    whole = run.steps * batch.global_batch_size if run.steps else run.tokens // batch.sequence_length
    for its, count in zip(sources, counts, strict=True):
        share = its.weight / sum(other.weight for other in sources)
        log.info(
            "data: %s: %.2f %% of the samples, %.2f epochs by the end",
            its.path,
            100 * share,
            whole * share / count,
        )
