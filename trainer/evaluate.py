"""Loss on the held-out part: the same samples each time, divided over the ranks, the same number on every rank."""

from typing import Any

import torch

from contract.config import RunConfig
from contract.page import WorkerPage
from contract.states import Phase
from trainer.data.batches import stack
from trainer.data.corpora import Reader
from trainer.distributed import Ranks
from trainer.step import summed_loss


class Evaluation:
    """The held-out samples of this rank.

    All ranks run the same number of forward passes (ZeRO-3 gathers weights in each), so the wanted number of samples
    is rounded up to whole micro-batches. They are spread evenly over the held-out part, repeating when it is smaller.
    """

    def __init__(self, config: RunConfig, reader: Reader, ranks: Ranks) -> None:
        size = config.batch.micro_batch_size
        portions = -(-config.data.evaluate_samples // (size * ranks.size))
        total = portions * size * ranks.size
        numbers = reader.spread(total)[ranks.rank :: ranks.size]
        self._batches = [stack(reader, numbers[at : at + size]) for at in range(0, len(numbers), size)]
        self._ranks = ranks

    def loss(self, engine: Any, page: WorkerPage, *, step: int) -> float:
        """Mean loss per held-out token over all ranks, the same number on every rank."""
        engine.eval()
        total, tokens = 0.0, 0
        with torch.no_grad():
            for number, batch in enumerate(self._batches):
                page.mark(step=step, phase=Phase.EVALUATE, micro_step=number)
                total += float(summed_loss(engine, batch.to(self._ranks.device)))
                tokens += batch.shape[0] * (batch.shape[1] - 1)
        engine.train()
        all_loss, all_tokens = self._ranks.sums(total, tokens)
        return all_loss / all_tokens
