"""The DeepSpeed engine: its configuration (pure), and building it.

Every default of DeepSpeed that has moved between versions is written out here.
"""

from collections.abc import Callable
from typing import Any

import deepspeed
import torch

from contract.config import RunConfig
from contract.config.deepspeed import OWNED
from trainer import ops
from trainer.errors import ConfigError, NumericsError
from trainer.model import check_router_bias, parameter_groups


def deepspeed_config(config: RunConfig, *, ranks: int) -> dict[str, Any]:
    """DeepSpeed's JSON for this run: ours, overlaid by the user's own keys.

    Raises:
        ConfigError: the user's keys contradict a section, or the combination is one that trains wrongly.
    """
    try:
        accumulation, theirs = config.batch.accumulation_steps(ranks), config.deepspeed.settings()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    bf16 = config.precision.dtype == "bf16"
    ours: dict[str, Any] = {
        "train_batch_size": config.batch.global_batch_size,
        "train_micro_batch_size_per_gpu": config.batch.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": config.optimizer.gradient_clipping,
        # backward() only accumulates and step() is the boundary: the trainer divides by the window's tokens.
        "managed_gradient_accumulation": False,
        "data_types": {"grad_accum_dtype": "fp32"},
        "bf16": {"enabled": bf16, "check_grad_overflow": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 62,  # our own metrics tell the progress
        "zero_optimization": {
            "stage": config.deepspeed.zero_stage,
            "overlap_comm": False,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "allgather_partitions": True,
            "reduce_bucket_size": config.deepspeed.reduce_bucket_size,
            "allgather_bucket_size": config.deepspeed.reduce_bucket_size,
        },
    }
    if config.deepspeed.offload_optimizer:
        ours["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    merged = _overlay(ours, theirs)
    for key, where in OWNED.items():
        if merged[key] != ours[key]:
            raise ConfigError(f"[deepspeed] {key} is {merged[key]}, but {where} makes it {ours[key]}")
    if merged["zero_optimization"]["stage"] == 0 and bf16:
        raise ConfigError("[deepspeed] zero_stage: 0 with bf16 loses optimizer state in DeepSpeed; use 1")
    return merged


def _overlay(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """`theirs` over `ours`, table by table."""
    merged = dict(ours)
    for key, value in theirs.items():
        inner = merged.get(key)
        merged[key] = _overlay(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def build_engine(config: RunConfig, settings: dict[str, Any], model: torch.nn.Module) -> Any:
    """The engine around this model with AdamW, ready to step or to load a checkpoint.

    Raises:
        ConfigError: DeepSpeed has made of the model what cannot be trained.
    """
    wanted = config.optimizer
    optimizer_class, extra = ops.adamw(offloaded="offload_optimizer" in settings["zero_optimization"])
    optimizer = optimizer_class(
        parameter_groups(model, weight_decay=wanted.weight_decay),
        lr=wanted.lr,
        betas=(wanted.beta1, wanted.beta2),
        eps=wanted.eps,
        **extra,
    )
    if settings["zero_optimization"]["stage"] == 0:
        settings = settings | {"gradient_clipping": 0.0}
        optimizer.register_step_pre_hook(_clip_and_guard(wanted.gradient_clipping))
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    check_router_bias(engine.module)
    return engine


def _clip_and_guard(limit: float) -> Callable[[torch.optim.Optimizer, Any, Any], None]:
    """A hook before the update that does without ZeRO what ZeRO's optimizers do: norm, clipping, refusal of a NaN.

    Gradients are reduced by then, so every rank computes the same and comes to the same end.
    """

    def hook(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit or float("inf"))
        if not bool(torch.isfinite(norm)):
            raise NumericsError("the gradient norm is not finite")
        optimizer._global_grad_norm = norm  # noqa: SLF001 - DeepSpeed reads it there

    return hook


def write_rate(engine: Any, rate: float) -> None:
    """Set the learning rate of the coming step. No scheduler object: the rate is a function of the position."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def restore_clipping(engine: Any, limit: float) -> None:
    """Undo what loading does: ZeRO-1 and 2 take the clipping limit from the checkpoint instead of the config."""
    if hasattr(engine.optimizer, "clip_grad"):
        engine.optimizer.clip_grad = limit


def gradient_norm(engine: Any) -> float:
    """Global norm of the last step's gradient before clipping. DeepSpeed's type for it differs by stage."""
    return float(engine.get_global_grad_norm())
