"""Around DeepSpeed's update: the norm that drops a step, the embedding's own limit, and a look at the weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.runtime.utils import get_global_norm_of_tensors

from contract.schedule import EMBEDDING
from trainer.errors import ConfigError

# Where the ZeRO optimizers keep the float32 weights of this rank, by the name of the attribute.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition")


@dataclass
class Watch:
    """What is looked at around an update.

    `limit` gives the largest norm of the coming step's gradient; `spike` is the norm that went beyond it (0: none did).
    `sound` is false when this rank's weights are not finite after the step that `last` names. `clipping` is the largest norm that
    a gradient is scaled down to, 0 for none (without ZeRO; ZeRO's optimizers keep their own).
    """

    limit: Callable[[], float] = lambda: math.inf
    spike: float = 0.0
    sound: bool = True
    clipping: float = 0.0
    last: str = ""

    def passes(self, norm: float) -> bool:
        """Whether the update may happen. Remembers a finite norm that is too large."""
        self.spike = norm if math.isfinite(norm) and norm > self.limit() else 0.0
        return math.isfinite(norm) and not self.spike


def guard_plain_step(optimizer: torch.optim.Optimizer, watch: Watch) -> None:
    """Do without ZeRO what ZeRO's optimizers do: norm, clipping, and no update by a gradient that is not finite.

    Gradients are reduced by then, so every rank computes the same and comes to the same end.
    """
    plain = optimizer.step

    def step(_optimizer: Any, _closure: Any = None) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, watch.clipping or float("inf"))
        # DeepSpeed reads both there.
        optimizer._global_grad_norm = norm  # noqa: SLF001
        optimizer.overflow = not watch.passes(float(norm))
        if not optimizer.overflow:
            plain()

    optimizer.step = MethodType(step, optimizer)


def guard_zero_step(zero: Any, watch: Watch) -> None:
    """Make ZeRO treat a gradient norm beyond the limit like one that is not finite: no update, gradients cleared.

    The norm is that of all ranks and the limit the same on all, so they decide alike. No communication of ours.
    """
    if hasattr(zero, "scaled_global_norm"):  # ZeRO 1 and 2
        whole = zero.scaled_global_norm

        def scaled_global_norm(*arguments: Any, **named: Any) -> Any:
            norm = whole(*arguments, **named)
            return norm if watch.passes(float(norm) / zero.loss_scale) else _infinite(norm)

        zero.scaled_global_norm = scaled_global_norm
    elif hasattr(zero, "_get_norm_groups"):  # ZeRO 3
        groups = zero._get_norm_groups  # noqa: SLF001

        def get_norm_groups() -> Any:
            found = groups()
            norms = [float(norm) for norm in found]
            whole = (
                math.hypot(*norms) if min(norms) >= 0 else math.inf
            )  # -1 stands for one that is not finite
            return found if watch.passes(whole / zero.loss_scale) else [_infinite(found[0])]

        zero._get_norm_groups = get_norm_groups  # noqa: SLF001
    elif hasattr(zero, "clear_hp_grads"):  # ZeRO 1 with bf16
        _guard_bf16_step(zero, watch)
    else:
        raise ConfigError(
            f"[numerics] spike_factor: {type(zero).__name__} of this DeepSpeed cannot be guarded"
        )


def _guard_bf16_step(zero: Any, watch: Watch) -> None:
    """This optimizer keeps its norm to itself, so it is computed once more before it is asked to step."""
    plain = zero.step

    def step(closure: Any = None) -> None:
        gradients, _ = zero.get_grads_for_norm()
        norm = get_global_norm_of_tensors(input_tensors=gradients, mpu=zero.mpu, norm_type=zero.norm_type)
        if watch.passes(float(norm)) or not watch.spike:  # what is not finite it finds itself
            plain(closure)
            return
        zero.overflow, zero._global_grad_norm = True, math.inf  # noqa: SLF001
        zero.clear_hp_grads()
        zero.clear_lp_grads()

    zero.step = step


def _infinite(norm: Any) -> torch.Tensor:
    return torch.full_like(torch.as_tensor(norm, dtype=torch.float32), math.inf)


def forget_gradient(engine: Any) -> None:
    """After a dropped step: DeepSpeed 0.19 keeps the gradient of ZeRO 1 and 2 when the update runs on the host.

    The next step would add to it, and never be finite again.
    """
    zero = engine.optimizer
    if getattr(zero, "cpu_offload", False) and isinstance(getattr(zero, "averaged_gradients", None), dict):
        for group in zero.averaged_gradients:
            zero.averaged_gradients[group] = None


def drop_gradient(engine: Any) -> None:
    """Forget what has been accumulated since the last update, as if the step had not begun (ZeRO 0 and 1).

    These reduce in the update, so nothing of it has reached another rank.
    """
    engine.optimizer.zero_grad()
    for parameter in engine.module.parameters():
        parameter.grad = None
    engine._unmanaged_backward_count = 0  # noqa: SLF001 - DeepSpeed counts the passes of a step there


def limit_embedding(engine: Any, optimizer: torch.optim.Optimizer, limit: float, *, divided: bool) -> None:
    """Scale the embedding's gradient down to this norm, right before its update and after the global clipping.

    The embedding has a group of its own. Under ZeRO each rank holds a part of its gradient, so the norm is summed
    over the ranks; every rank steps every group, in the same order.
    """
    zero = engine.optimizer
    pieces = [index for index in getattr(zero, "sub_group_to_group_id", {}).values() if index == 0]
    if len(pieces) > 1:
        raise ConfigError(
            "[numerics] embedding_clipping: the embedding is larger than zero_optimization.sub_group_size; raise that"
        )

    def hook(stepping: torch.optim.Optimizer, _arguments: Any, _named: Any) -> None:
        for group in stepping.param_groups:
            if group.get("name") != EMBEDDING:
                continue
            found = [p.grad for p in group["params"] if p.grad is not None]
            if found:
                _shrink(found, limit, divided=divided)

    optimizer.register_step_pre_hook(hook)


def _shrink(gradients: list[torch.Tensor], limit: float, *, divided: bool) -> None:
    squares = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()
    if divided:
        on_host = squares.device.type == "cpu" and dist.get_backend() == "nccl"  # offloaded gradients
        squares = squares.cuda() if on_host else squares
        dist.all_reduce(squares)
    factor = limit / max(float(squares) ** 0.5, limit)
    if factor < 1:
        for gradient in gradients:
            gradient.mul_(factor)


def weights_are_finite(engine: Any) -> bool:
    """Whether this rank's float32 weights are: one pass over them, and one number to the host.

    Under ZeRO each rank looks at its own part; somebody must bring the answers together.
    """
    masters = next(
        (getattr(engine.optimizer, name) for name in _MASTERS if hasattr(engine.optimizer, name)), None
    )
    tensors = list(engine.module.parameters()) if masters is None else masters
    with torch.no_grad():
        # A sum is not finite when a term is not; finite weights of a usable size do not add up to infinity.
        sums = [tensor.sum(dtype=torch.float32) for tensor in tensors if tensor.numel()]
        return bool(torch.isfinite(torch.stack(sums)).all()) if sums else True
