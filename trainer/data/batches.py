"""What one rank computes in one optimizer step."""

from dataclasses import dataclass

import numpy as np
import torch

from contract.sampling import Sampler, Taken
from trainer.background import Background
from trainer.batch.plan import Plan
from trainer.data.corpora import Reader


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
    """Reads this rank's samples of a step, those of the next step already while this one is computed."""

    def __init__(self, reader: Reader, sampler: Sampler, *, rank: int) -> None:
        self._reader = reader
        self._sampler = sampler
        self._rank = rank
        self._plan: Plan | None = None
        self._portions: tuple[range, ...] = ()
        self._next: Background[Window] | None = None
        self._next_is: tuple[int, Plan] | None = None

    def window(self, position: int, plan: Plan) -> Window:
        """This rank's part of the step that starts at this sampler position and is cut like this.

        Raises:
            OSError: its samples cannot be read.
        """
        ahead, expected = self._next, self._next_is == (position, plan)
        if ahead is not None:
            ahead.wait()  # one at a time reads
        found = (
            self._read(position, plan)
            if ahead is None or not expected
            else self._or_again(ahead, position, plan)
        )
        end = found.taken.end
        self._next_is = (end, plan)
        self._next = Background(lambda: self._read(end, plan), "samples ahead")
        return found

    def _or_again(self, ahead: Background[Window], position: int, plan: Plan) -> Window:
        try:
            return ahead.result()
        except OSError:  # a moment ago; now is another try
            return self._read(position, plan)

    def _read(self, position: int, plan: Plan) -> Window:
        if plan != self._plan:
            self._plan, self._portions = plan, plan.portions(self._rank)
        taken = self._sampler.take(position, plan.global_batch)
        micro_batches = []
        for portion in self._portions:
            numbers = [self._sampler.sample(taken.positions[at]) for at in portion]
            micro_batches.append(stack(self._reader, numbers))
        return Window(micro_batches=tuple(micro_batches), taken=taken)


def stack(reader: Reader, samples: list[int]) -> torch.Tensor:
    """These samples as one int64 tensor (samples, length + 1)."""
    return torch.from_numpy(np.stack([reader.sample(number) for number in samples]))
