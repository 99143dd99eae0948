"""What one rank computes in one optimizer step."""

from dataclasses import dataclass

import numpy as np
import torch

from contract.config.batch import Batch
from trainer.data.reader import TokenReader
from trainer.data.sampler import Sampler, Taken


@dataclass(frozen=True, kw_only=True)
class Window:
    """The micro-batches of one rank for one step: each (micro_batch, sequence_length + 1) token numbers, int64.

    `taken` are the positions of all ranks together.
    """

    micro_batches: tuple[torch.Tensor, ...]
    taken: Taken

    @property
    def tokens(self) -> int:
        """Targets that this rank trains on in this step."""
        return sum(batch.shape[0] * (batch.shape[1] - 1) for batch in self.micro_batches)


class Batches:
    """Reads the samples of a step; rank r takes the r-th portion of each micro-step."""

    def __init__(self, reader: TokenReader, sampler: Sampler, batch: Batch, *, rank: int, ranks: int) -> None:
        self._reader = reader
        self._sampler = sampler
        self._batch = batch
        self._rank = rank
        self._ranks = ranks
        self._accumulation = batch.accumulation_steps(ranks)

    def window(self, position: int) -> Window:
        """This rank's part of the step that starts at this sampler position."""
        taken = self._sampler.take(position, self._batch.global_batch_size)
        size = self._batch.micro_batch_size
        micro_batches = []
        for micro_step in range(self._accumulation):
            start = (micro_step * self._ranks + self._rank) * size
            numbers = [self._sampler.sample(at) for at in taken.positions[start : start + size]]
            micro_batches.append(stack(self._reader, numbers))
        return Window(micro_batches=tuple(micro_batches), taken=taken)


def stack(reader: TokenReader, samples: list[int]) -> torch.Tensor:
    """These samples as one int64 tensor (samples, length + 1)."""
    return torch.from_numpy(np.stack([reader.sample(number) for number in samples]))
