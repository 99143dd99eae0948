"""What decides about speed and memory: set up before the engine, checked after it, and said in the log."""

import logging
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from transformers import masking_utils

from contract.config import RunConfig
from contract.config.memory import Memory
from trainer.attention import kernel_for
from trainer.errors import ConfigError
from trainer.head import ChunkedHead
from trainer.model import EXPERTS

log = logging.getLogger(__name__)

_DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,  # only the linear layers are in 8 bits
}


def compiled(model: Any, *, wanted: bool) -> Any:
    """The network with its decoder layers compiled at their first pass, if wanted: names and parameters stay.

    Each for itself: equal layers share what was compiled, and a whole network would take many times as long.
    """
    if wanted:
        for layer in model.model.layers:
            layer.compile(dynamic=False)
    return model


def thrifty(model: Any, wanted: Memory) -> Any:
    """The network with [memory] applied. Its parameters stay the same objects under the same names."""
    # Samples fill their length, nothing is packed: the library need not look, and wait for the device, in each pass.
    masking_utils.find_packed_sequence_indices = lambda _positions: None
    if wanted.recompute != "none":
        model.activation_checkpointing_enable(every_n_layers=2 if wanted.recompute == "half" else 1)
    if wanted.loss_chunk_tokens:
        # Another class for the same object: what holds its parameter keeps it.
        model.lm_head.__class__ = ChunkedHead
        model.lm_head.portion = wanted.loss_chunk_tokens
    return model


def check_levers(engine: Any, config: RunConfig) -> None:
    """Say what this run's speed rests on.

    Raises:
        ConfigError: the experts would be asked one by one, each with a wait for the device.
    """
    settings = engine.module.config
    experts = settings._experts_implementation  # noqa: SLF001 - no other way to ask
    if experts != EXPERTS:
        raise ConfigError(f"[model] this transformers runs the experts as {experts!r}, not as {EXPERTS!r}")
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    fused = "fused" if optimizer.defaults.get("fused") else "not fused by torch"
    if config.deepspeed.expert_parallel > 1:
        experts = f"{experts} divided over {config.deepspeed.expert_parallel} ranks"
    memory, kernel = config.memory, kernel_for(settings, engine.device, _DTYPES[config.precision.dtype])
    if engine.device.type == "cuda" and kernel == SDPBackend.MATH:
        log.warning(
            "no fast attention kernel takes heads of %d and %d here: memory grows with the square of the length",
            settings.qk_nope_head_dim + settings.qk_rope_head_dim,
            settings.v_head_dim,
        )
    log.info(
        "levers: experts %s, attention %s (%s), %s (%s), layers %s, recomputed: %s, loss %s, throughput timer of DeepSpeed %s",
        experts,
        settings._attn_implementation,  # noqa: SLF001
        kernel.name.lower().removesuffix("_attention"),
        type(optimizer).__name__,
        fused,
        "compiled" if config.model.compile_layers else "not compiled",
        memory.recompute,
        f"in portions of {memory.loss_chunk_tokens} tokens" if memory.loss_chunk_tokens else "at once",
        "on" if engine.tput_timer.config.enabled else "off",
    )
