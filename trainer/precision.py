"""Number formats: whether this device has them, and the FP8 layers.

FP8 is torchao's: weights, gradients and optimizer state stay as under bf16, and a layer's three matrix products are
computed in 8 bits, scaled by tensor: E4M3 forward, E5M2 for the gradient that comes in (DeepSpeed's word: HYBRID).
"""

import logging
import re
from typing import Any

import deepspeed
import torch

from contract.config.precision import Precision
from trainer.errors import ConfigError

log = logging.getLogger(__name__)

_CAPABILITY = (8, 9)  # the first devices with FP8 tensor cores: Ada; Hopper is 9.0, A100 only 8.0
_TILE = 16  # FP8 products need both sizes to be multiples of it
# Where 8 bits cost accuracy: the head's logits, the embedding, and the router, whose choice is all or nothing.
_KEPT = re.compile(r"(?:^|\.)(?:lm_head|embed_tokens|gate|eh_proj)$|norm")


def check_precision(wanted: Precision) -> None:
    """Refuse a format that this device does not have, before anything is trained.

    Raises:
        ConfigError: with what to use instead.
    """
    if wanted.dtype == "fp16" and not deepspeed.get_accelerator().is_fp16_supported():
        raise ConfigError(
            f"[precision] dtype: this {_device()} has no fp16; use bf16, which needs no loss scale either"
        )
    if wanted.dtype == "fp8" and not wanted.fp8_emulate and not _has_fp8():
        raise ConfigError(
            f"[precision] dtype: fp8 needs compute capability {_CAPABILITY[0]}.{_CAPABILITY[1]} or more (Ada, Hopper), "
            f"this is a {_device()}; use bf16 (fp8_emulate = true computes the same numbers in software, for tests)"
        )


def _has_fp8() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.get_device_capability() >= _CAPABILITY)


def _device() -> str:
    if not torch.cuda.is_available():
        return "CPU"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} with capability {major}.{minor}"


def in_precision(model: torch.nn.Module, wanted: Precision) -> torch.nn.Module:
    """The model with FP8 layers where they are asked for. Parameters stay the same objects, so checkpoints do too.

    Must come before `deepspeed.initialize`, which takes the parameters over.
    """
    if wanted.dtype != "fp8":
        return model
    # Here and not in trainer.preload: it takes a second that other runs need not wait for.
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    names: list[str] = []

    def chosen(module: torch.nn.Module, name: str) -> bool:
        takes = fits_fp8(module, name)
        if takes:
            names.append(name)
        return takes

    settings = Float8LinearConfig(emulate=wanted.fp8_emulate)
    converted: torch.nn.Module = convert_to_float8_training(model, config=settings, module_filter_fn=chosen)
    log.info("fp8 (HYBRID%s): %d linear layers", ", emulated" if wanted.fp8_emulate else "", len(names))
    if not names:
        raise ConfigError(
            f"[precision] dtype: fp8, but no linear layer has sizes that are multiples of {_TILE}"
        )
    return converted


def fits_fp8(module: Any, name: str) -> bool:
    """Whether this layer computes in FP8: large linear layers. The routed experts are no linear layers (bf16)."""
    if not isinstance(module, torch.nn.Linear) or _KEPT.search(name):
        return False
    return bool(module.in_features % _TILE == 0 and module.out_features % _TILE == 0)
