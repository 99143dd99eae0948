"""One optimizer step: accumulate, agree, update or not. Division and token counts are ours, not DeepSpeed's."""

import math
import time
from dataclasses import astuple, dataclass
from typing import Any

import torch

from contract.page import WorkerPage
from contract.states import Phase
from trainer.ahead import AheadDeepseekV3, take_ahead_loss
from trainer.batch.clock import Clock
from trainer.data.batches import Window
from trainer.distributed import Ranks
from trainer.engine import gradient_norm, loss_scale
from trainer.errors import NoMemoryError, NumericsError
from trainer.guard import Fault, FaultKind, where
from trainer.head import ChunkedHead
from trainer.norms import Watch, drop_gradient, forget_gradient
from trainer.routers import Load, Routers

# torch's own type on a GPU; its allocator on a CPU raises a plain RuntimeError.
_NO_MEMORY = ("out of memory", "DefaultCPUAllocator: can't allocate memory")
_AT_MINIMUM = "loss scale already at minimum"  # what DeepSpeed's scaler says when it gives up


@dataclass(frozen=True)
class Wishes:
    """What a rank wants or has to tell at a step; what one rank says holds for all.

    `stop`: save and leave. `save`: an order to save now. `due`: the rhythm of saves asks for one. `saving`: a save is
    still being written. `stuck`: and its writing does not move any more. `redo`: the caller can cut the window into
    smaller portions and try again, should a rank run out of memory. `news`: rank 0 has settings for all.
    """

    stop: bool = False
    save: bool = False
    due: bool = False
    saving: bool = False
    stuck: bool = False
    redo: bool = False
    news: bool = False


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What watches a step from inside."""

    page: WorkerPage
    watch: Watch
    clock: Clock
    routers: Routers
    ahead_weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What all ranks know after a step. `loss` is the mean over the global batch's tokens.

    `balance_loss` is the same of the routers' loss, `ahead_loss` that of predicting one token further, before its
    weight. They are trained on and no part of `loss`; None: there is none.
    With a `fault` the weights are what they were, and `loss` or `grad_norm` need not be finite.
    """

    loss: float
    grad_norm: float
    tokens: int
    agreed: Wishes
    fault: Fault | None = None
    loss_scale: float = 1.0
    balance_loss: float | None = None
    ahead_loss: float | None = None
    load: Load | None = None


def summed_loss(engine: Any, batch: torch.Tensor) -> torch.Tensor:
    """Cross-entropy summed over the targets of (samples, length + 1) tokens, in float32.

    A network that predicts one token further keeps that loss aside while it trains.
    """
    module, inputs = engine.module, {"input_ids": batch[:, :-1], "use_cache": False}
    if isinstance(module, AheadDeepseekV3) and module.training:
        inputs["ahead"] = batch[:, 2:]
    if isinstance(module.lm_head, ChunkedHead):
        with module.lm_head.towards(batch[:, 1:]):
            chunked: torch.Tensor = engine(**inputs).logits
        return chunked
    logits = engine(**inputs).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
    )


def take_step(
    engine: Any,
    window: Window,
    ranks: Ranks,
    instruments: Instruments,
    *,
    step: int,
    wishes: Wishes,
) -> Outcome:
    """Train on one window; `step` steps have been done before it.

    The gradient is that of the mean over all tokens of the window, however the ranks divide it: DeepSpeed averages
    over ranks, so each rank's sum is scaled by ranks / tokens of all.

    Raises:
        NoMemoryError: a rank ran out of memory. With `redo` wished and without collectives inside a pass (ZeRO 0 and 1) on
            all ranks, and it is as if the step had not begun; otherwise on that rank alone, whose process must end.
        NumericsError: on all ranks, when the last step broke the weights of one, or the loss scale cannot become
            smaller (then the weights are unchanged).
    """
    page, watch, routers = instruments.page, instruments.watch, instruments.routers
    page.mark(step=step, phase=Phase.FORWARD)  # who waits here has its data: the one that has not is behind
    tokens, unsound = _agreed(ranks, page, window.tokens, not watch.sound)
    refuse_broken_weights(ranks, watch, unsound)
    sums, short = (0.0, 0.0, 0.0), ""
    routers.forget()
    try:
        sums = _accumulate(engine, window, ranks.device, instruments, step=step, weight=ranks.size / tokens)
    except RuntimeError as error:
        short = _memory_error(error)
        if not short:
            raise
        if not wishes.redo or engine.zero_optimization_stage() > 1:
            raise NoMemoryError(short) from error
    page.mark(step=step, phase=Phase.OPTIMIZER)
    summed, balance, ahead, shorts, *told = _agreed(ranks, page, *sums, bool(short), *astuple(wishes))
    if shorts:
        _begin_again(engine, ranks, short)
    scale = loss_scale(engine)
    try:
        fault = _update(engine, watch)
    except NumericsError as error:
        raise NumericsError(where(str(error), step, window.taken.start, window.taken.end)) from error
    if not math.isfinite(summed):
        text = f"the loss is not finite{_culprits(ranks, fine=math.isfinite(sums[0]))}"
        fault = Fault(kind=FaultKind.NOT_FINITE, text=text)
    return Outcome(
        loss=summed / tokens,
        grad_norm=gradient_norm(engine),
        tokens=int(tokens),
        agreed=Wishes(*(number > 0 for number in told)),
        fault=fault,
        loss_scale=scale,
        balance_loss=balance / tokens if routers.have_loss else None,
        ahead_loss=ahead / tokens if instruments.ahead_weight else None,
        load=routers.settle(applied=fault is None),
    )


def _memory_error(error: RuntimeError) -> str:
    """What the allocator said, "" when it was another error."""
    text = str(error)
    return text.splitlines()[0] if any(words in text for words in _NO_MEMORY) else ""


def _begin_again(engine: Any, ranks: Ranks, short: str) -> None:
    drop_gradient(engine)
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
    told = ranks.gather(short)
    who = tuple(rank for rank, text in enumerate(told) if text)
    raise NoMemoryError(f"rank {who[0]}: {told[who[0]]}", who)


def _agreed(ranks: Ranks, page: WorkerPage, *numbers: float) -> list[float]:
    """The sums over all ranks. Standing here is waiting for the slowest: the page tells it apart from work."""
    page.region("agree")
    begun = time.monotonic_ns()
    found = ranks.sums(*numbers)
    page.waited(time.monotonic_ns() - begun)
    page.region()
    return found


def _accumulate(
    engine: Any,
    window: Window,
    device: torch.device,
    instruments: Instruments,
    *,
    step: int,
    weight: float,
) -> tuple[float, float, float]:
    """The gradient of this rank's micro-batches, each loss times `weight`. Returns the sums of the losses.

    They are added up on the device, which nobody waits for between two passes: the host runs ahead until the sums
    are read, and tells by the page what it has asked for. A loss that is not finite makes the whole gradient so: DeepSpeed's own check then drops the update on all ranks and
    clears what was accumulated. No rank has to ask another before its backward pass.
    """
    page, clock, routers = instruments.page, instruments.clock, instruments.routers
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    for number, batch in enumerate(window.micro_batches):
        page.mark(step=step, phase=Phase.FORWARD, micro_step=number)
        clock.mark()
        with routers.watching():
            loss = summed_loss(engine, batch.to(device, non_blocking=True))
        balance, ahead = routers.balance_loss(batch.shape[0]), take_ahead_loss(engine.module)
        clock.mark()
        page.mark(step=step, phase=Phase.BACKWARD, micro_step=number)
        sums[0] += loss.detach()
        if balance is not None:
            sums[1] += balance.detach()
            loss = loss + balance
        if ahead is not None:
            sums[2] += ahead.detach()
            loss = loss + instruments.ahead_weight * ahead
        engine.backward(
            loss * torch.where(torch.isfinite(loss.detach()), weight, math.nan), scale_wrt_gas=False
        )
        clock.mark()
    found = sums.tolist()
    return found[0], found[1], found[2]


def _update(engine: Any, watch: Watch) -> Fault | None:
    """Let DeepSpeed update the weights, or say why it did not. All ranks come to the same answer."""
    scale, watch.spike = loss_scale(engine), 0.0
    try:
        engine.step()
    except Exception as error:
        if _AT_MINIMUM not in str(error):
            raise
        raise NumericsError("the gradient is not finite even with the smallest loss scale") from error
    if engine.was_step_applied():
        return None
    forget_gradient(engine)
    if watch.spike:
        text = f"the gradient norm {watch.spike:.3g} is a spike, above {watch.limit():.3g}"
        return Fault(kind=FaultKind.SPIKE, text=text)
    if scale > 1:
        return Fault(kind=FaultKind.SCALING, text=f"the gradient is not finite with loss scale {scale:g}")
    return Fault(kind=FaultKind.NOT_FINITE, text="the gradient norm is not finite")


def refuse_broken_weights(ranks: Ranks, watch: Watch, unsound: float) -> None:
    """End the training when `unsound` ranks, summed over all, have weights that are not finite.

    Asked together with the next step's first agreement, and before a save: such weights neither train on nor last.

    Raises:
        NumericsError: on all ranks.
    """
    if unsound:
        culprits = _culprits(ranks, fine=watch.sound)
        raise NumericsError(f"the weights are not finite{culprits} since the update {watch.last}")


def _culprits(ranks: Ranks, *, fine: bool) -> str:
    bad = [str(rank) for rank, its in enumerate(ranks.gather(fine)) if not its]
    # Cut short: the positions at the end of the sentence must arrive.
    more = f" and {len(bad) - 8} others" if len(bad) > 8 else ""
    return f" on rank {', '.join(bad[:8])}{more}" if bad else ""
