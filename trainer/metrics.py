"""One line of JSON per optimizer step, written by rank 0."""

import json
import logging
import math
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from contract.layout import RunDir
from contract.sampling import Taken
from trainer.batch.plan import Plan
from trainer.progress import Progress
from trainer.step import Outcome
from trainer.trackers.beside import Tracking

log = logging.getLogger(__name__)

_MOST_WAITING = 16 << 20


class Metrics:
    """metrics/aNNNN-gNNNN.jsonl of this generation. On other ranks than 0 it writes nothing."""

    def __init__(
        self, run: RunDir, *, attempt: int, generation: int, active: bool, tracking: Tracking | None = None
    ) -> None:
        self._file = None
        self._tracking = tracking
        self._waiting = b""  # what a file system that refused has not taken yet
        self._refused = False
        if active:
            path = run.metrics_of(attempt, generation)
            path.parent.mkdir(exist_ok=True)
            self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
        if self._tracking is not None:
            self._tracking.close()

    def write(
        self,
        progress: Progress,
        outcome: Outcome,
        taken: Taken,
        *,
        plan: Plan,
        changed: str,
        rates: tuple[float, float],
        seconds: float,
        val_loss: float | None,
    ) -> None:
        """One finished step; readers see the line at once. `positions` is half-open, in sampler positions.

        `plan` is how the step was cut, `changed` why the next one is cut otherwise ("": it is not). `rates` are those of the embedding and of the last layer with the head; the latter is the `lr` of the line. The routers' figures have one number for each layer with experts.
        """
        if self._file is None:
            return
        line: dict[str, Any] = {
            "step": progress.step,
            "loss": _number(outcome.loss),
            "grad_norm": _number(outcome.grad_norm),
            "lr": rates[1],
            "lr_embedding": rates[0],
            "tokens": progress.tokens,
            "tokens_per_s": round(outcome.tokens / seconds, 1),
            "step_s": round(seconds, 4),
            "positions": [taken.start, taken.end],
            "global_batch": plan.global_batch,
            "micro_steps": plan.micro_steps,
            "loss_scale": outcome.loss_scale,
        }
        if outcome.balance_loss is not None:
            line["balance_loss"] = _number(outcome.balance_loss)
        if outcome.ahead_loss is not None:
            line["mtp_loss"] = _number(outcome.ahead_loss)
        if outcome.load is not None:
            line["router_violation"] = [round(value, 3) for value in outcome.load.violation]
            line["router_starved"] = list(outcome.load.starved)
        if outcome.fault is not None:
            line["dropped"] = outcome.fault.text
        if changed:
            line["batch_change"] = changed
        if val_loss is not None:
            line["val_loss"] = _number(val_loss)
        self._waiting += json.dumps(line).encode() + b"\n"
        self._try(self._write_waiting)
        if self._tracking is not None:
            self._tracking.write(line)

    def sync(self) -> None:
        """Make the lines so far durable: a checkpoint must never be newer than the metrics that led to it."""
        if self._file is not None:
            self._try(self._write_waiting)
            self._try(lambda: os.fsync(self._file.fileno()) if self._file else None)
        if self._tracking is not None:
            self._tracking.flush()

    def _write_waiting(self) -> None:
        while self._waiting and self._file is not None:
            self._waiting = self._waiting[self._file.write(self._waiting) :]

    def _try(self, work: Callable[[], None]) -> None:
        """A full disk must not end the training: lines wait in memory, so many of them, until there is room again."""
        try:
            work()
        except OSError as error:
            if not self._refused:
                log.warning("metrics cannot be written for now, lines are kept in memory: %s", error)
            self._refused = True
            if len(self._waiting) > _MOST_WAITING:
                self._waiting = self._waiting[self._waiting.index(b"\n", _MOST_WAITING // 2) + 1 :]
        else:
            self._refused = False


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None
