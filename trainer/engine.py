"""The DeepSpeed engine: its configuration (pure), and building it.

Every default of DeepSpeed that has moved between versions is written out here.
"""

import math
from typing import Any

import deepspeed
import torch

from contract.config import RunConfig
from contract.config.deepspeed_keys import OWNED
from trainer import ops
from trainer.errors import ConfigError
from trainer.groups import Layout, for_optimizer, groups_of
from trainer.model import check_router_bias
from trainer.muon import Muon, Part
from trainer.norms import Watch, guard_plain_step, guard_zero_step, limit_embedding
from trainer.reshape.carry import shapes_of
from trainer.reshape.places import clear_padding, keepers, places

# Of the loss under fp16: 0 lets DeepSpeed find it, starting at 2**16.
_SCALING = {
    "loss_scale": 0,
    "initial_scale_power": 16,
    "loss_scale_window": 1000,
    "hysteresis": 2,
    "min_loss_scale": 1,
}


def deepspeed_config(config: RunConfig, *, ranks: int) -> dict[str, Any]:
    """DeepSpeed's JSON for this run: ours, overlaid by the user's own keys.

    Raises:
        ConfigError: the user's keys contradict a section, or the combination is one that trains wrongly.
    """
    try:
        accumulation, theirs = config.batch.accumulation_steps(ranks), config.deepspeed.settings()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    dtype = config.precision.dtype
    ours: dict[str, Any] = {
        "train_batch_size": config.batch.global_batch_size,
        "train_micro_batch_size_per_gpu": config.batch.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": config.optimizer.gradient_clipping,
        # backward() only accumulates and step() is the boundary: the trainer divides by the window's tokens.
        "managed_gradient_accumulation": False,
        "data_types": {"grad_accum_dtype": "fp32"},
        "bf16": {"enabled": dtype in {"bf16", "fp8"}, "check_grad_overflow": True},
        "fp16": {"enabled": dtype == "fp16", **_SCALING},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 62,  # our own metrics tell the progress
        "timers": {"throughput": {"enabled": False}},  # it waits for the device in every micro-batch
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
    if config.deepspeed.expert_parallel > 1:
        ours["expert_parallel"] = {
            "enabled": True,
            "autoep_size": config.deepspeed.expert_parallel,
            "preset_model": config.model.family,
        }
    if config.deepspeed.offload_optimizer:
        ours["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if config.deepspeed.offload_param:
        ours["zero_optimization"]["offload_param"] = {"device": "cpu"}
    merged = _overlay(ours, theirs)
    for key, where in OWNED.items():
        if merged[key] != ours[key]:
            raise ConfigError(f"[deepspeed] {key} is {merged[key]}, but {where} makes it {ours[key]}")
    if merged["zero_optimization"]["stage"] == 0 and dtype != "fp32":
        raise ConfigError(f"[deepspeed] zero_stage: 0 with {dtype} loses optimizer state in DeepSpeed; use 1")
    return merged


def _overlay(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """`theirs` over `ours`, table by table."""
    merged = dict(ours)
    for key, value in theirs.items():
        inner = merged.get(key)
        merged[key] = _overlay(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def build_engine(
    config: RunConfig,
    settings: dict[str, Any],
    model: torch.nn.Module,
    layout: Layout,
    watch: Watch,
) -> Any:
    """The engine around this model with its optimizer, ready to step or to load a checkpoint.

    Raises:
        ConfigError: DeepSpeed has made of the model what cannot be trained.
    """
    wanted = config.optimizer
    offloaded = "offload_optimizer" in settings["zero_optimization"]
    optimizer_class, extra = ops.muon(wanted) if wanted.name == "muon" else ops.adamw(offloaded=offloaded)
    plain = settings["zero_optimization"]["stage"] == 0
    if plain:
        settings = settings | {"gradient_clipping": 0.0}

    def made(_parameters: Any) -> torch.optim.Optimizer:
        """Called when DeepSpeed has put other modules in the place of some."""
        groups = groups_of(model, config.model.layers, layout)
        optimizer: torch.optim.Optimizer = optimizer_class(
            for_optimizer(model, groups, weight_decay=wanted.weight_decay),
            lr=wanted.lr,
            betas=(wanted.beta1, wanted.beta2),
            eps=wanted.eps,
            **extra,
        )
        if plain:
            watch.clipping = wanted.gradient_clipping
            guard_plain_step(optimizer, watch)
        return optimizer

    engine, *_ = deepspeed.initialize(model=model, optimizer=made, config=settings)
    optimizer = engine.basic_optimizer
    clear_padding(engine)
    if isinstance(optimizer, Muon):
        optimizer.meet(
            keepers(engine, groups_of(engine.module, config.model.layers, layout)),
            shapes_of(engine.module),
            {p.name: Part(start=p.start, count=p.count, offset=p.offset) for p in places(engine)},
            engine.device,
        )
    if config.numerics.spike_factor and not plain:
        guard_zero_step(engine.optimizer, watch)
    if config.numerics.embedding_clipping:
        limit_embedding(engine, optimizer, config.numerics.embedding_clipping, divided=not plain)
    check_router_bias(engine.module)
    return engine


def restore_clipping(engine: Any, limit: float) -> None:
    """Undo what loading does: ZeRO-1 and 2 take the clipping limit from the checkpoint instead of the config."""
    if hasattr(engine.optimizer, "clip_grad"):
        engine.optimizer.clip_grad = limit


def gradient_norm(engine: Any) -> float:
    """Global norm of the last step's gradient before clipping. DeepSpeed's type for it differs by stage."""
    norm = engine.get_global_grad_norm()
    return math.inf if norm is None else float(norm)


def loss_scale(engine: Any) -> float:
    """By what the loss of the coming step is multiplied; 1 without scaling."""
    return float(getattr(engine.optimizer, "loss_scale", 1.0))


def lower_scale(engine: Any) -> None:
    """Halve a loss scale that the configuration fixed. One that DeepSpeed looks for has been lowered by it already."""
    scaler = getattr(engine.optimizer, "loss_scaler", None)
    if scaler is not None and not scaler.dynamic:
        scaler.cur_scale = max(1.0, scaler.cur_scale / 2)
