"""One optimizer step: accumulate, agree, guard, update. Division and token counts are ours, not DeepSpeed's."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from contract.page import WorkerPage
from contract.states import Phase
from trainer.data.batches import Window
from trainer.distributed import Ranks
from trainer.engine import gradient_norm
from trainer.errors import NumericsError


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What all ranks know after a step. `loss` is the mean over the global batch's tokens."""

    loss: float
    grad_norm: float
    tokens: int
    stop: bool
    save: bool


def summed_loss(engine: Any, batch: torch.Tensor) -> torch.Tensor:
    """Cross-entropy summed over the targets of (samples, length + 1) tokens, in float32."""
    logits = engine(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
    )


def take_step(
    engine: Any, window: Window, ranks: Ranks, page: WorkerPage, *, step: int, stop: bool, save: bool
) -> Outcome:
    """Train on one window; `step` steps have been done before it, `stop` and `save` are this rank's wishes.

    The gradient is that of the mean over all tokens of the window, however the ranks divide it: DeepSpeed averages
    over ranks, so each rank's sum is scaled by ranks / tokens of all.

    Raises:
        NumericsError: loss or gradient norm is not finite on some rank, agreed by all. The weights are unchanged.
    """
    (tokens,) = ranks.sums(window.tokens)
    total = 0.0
    for number, batch in enumerate(window.micro_batches):
        page.mark(step=step, phase=Phase.FORWARD, micro_step=number)
        loss = summed_loss(engine, batch.to(ranks.device))
        page.mark(step=step, phase=Phase.BACKWARD, micro_step=number)
        engine.backward(loss * (ranks.size / tokens), scale_wrt_gas=False)
        total += float(loss.detach())
    page.mark(step=step, phase=Phase.OPTIMIZER)
    agreed, stops, saves = ranks.sums(total, stop, save)
    if not math.isfinite(agreed):
        raise NumericsError(_where(f"the loss is not finite{_culprits(ranks, total)}", window, step))
    try:
        engine.step()
    except NumericsError as error:
        raise NumericsError(_where(str(error), window, step)) from error
    if not engine.was_step_applied():
        raise NumericsError(_where("the gradient norm is not finite", window, step))
    return Outcome(
        loss=agreed / tokens,
        grad_norm=gradient_norm(engine),
        tokens=int(tokens),
        stop=stops > 0,
        save=saves > 0,
    )


def _culprits(ranks: Ranks, total: float) -> str:
    finite = ranks.gather(math.isfinite(total))
    bad = [str(rank) for rank, fine in enumerate(finite) if not fine]
    return f" on rank {', '.join(bad)}" if bad else ""


def _where(what: str, window: Window, step: int) -> str:
    return f"{what} at step {step + 1}, sampler positions [{window.taken.start}, {window.taken.end})"
