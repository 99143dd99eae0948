"""One line of JSON per optimizer step, written by rank 0."""

import json
import os
from types import TracebackType
from typing import Any, Self

from contract.layout import RunDir
from trainer.data.sampler import Taken
from trainer.progress import Progress
from trainer.step import Outcome


class Metrics:
    """metrics/aNNNN-gNNNN.jsonl of this generation. On other ranks than 0 it writes nothing."""

    def __init__(self, run: RunDir, *, attempt: int, generation: int, active: bool) -> None:
        self._file = None
        if active:
            path = run.metrics_of(attempt, generation)
            path.parent.mkdir(exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()

    def write(
        self,
        progress: Progress,
        outcome: Outcome,
        taken: Taken,
        *,
        lr: float,
        seconds: float,
        val_loss: float | None,
    ) -> None:
        """One finished step; readers see the line at once. `positions` is half-open, in sampler positions."""
        if self._file is None:
            return
        line: dict[str, Any] = {
            "step": progress.step,
            "loss": outcome.loss,
            "grad_norm": outcome.grad_norm,
            "lr": lr,
            "tokens": progress.tokens,
            "tokens_per_s": round(outcome.tokens / seconds, 1),
            "step_s": round(seconds, 4),
            "positions": [taken.start, taken.end],
        }
        if val_loss is not None:
            line["val_loss"] = val_loss
        self._file.write(json.dumps(line) + "\n")

    def sync(self) -> None:
        """Make the lines so far durable: a checkpoint must never be newer than the metrics that led to it."""
        if self._file is not None:
            os.fsync(self._file.fileno())
