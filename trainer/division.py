"""Under ZeRO 3 a network is divided while it comes into being, so that it may be larger than a rank's memory."""

from collections.abc import Mapping
from typing import Any

import deepspeed
import torch

_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Division:
    """Takes a network's modules one by one, from names and shapes (`meta`) to this rank's parts of their weights.

    Between `open` and `close` a module's own parameters are whole, in float32. They lie in one place that all modules
    use in turn: memory that comes and goes between the parts would leave gaps as large as the parts.
    """

    def __init__(self, model: torch.nn.Module, settings: Mapping[str, Any]) -> None:
        """`settings` is DeepSpeed's JSON."""
        largest = max(_size(module) for module in model.modules())
        dtype = next((its for key, its in _FORMATS.items() if settings[key]["enabled"]), torch.float32)
        self._whole = torch.empty(largest, dtype=torch.float32)
        self._formatted = self._whole if dtype is torch.float32 else torch.empty(largest, dtype=dtype)
        # No weights yet, but DeepSpeed prepares torch for divided layers.
        self._zero = deepspeed.zero.Init(module=torch.nn.Module(), config_dict_or_path=dict(settings))

    def open(self, module: torch.nn.Module) -> None:
        """Make the module's own parameters and buffers whole; nobody has filled them."""
        at = 0
        for name, empty in module.named_parameters(recurse=False):
            place = self._whole.narrow(0, at, empty.numel()).view(empty.shape)
            module.register_parameter(name, torch.nn.Parameter(place))
            at += empty.numel()
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty_like(buffer, device="cpu"))

    def close(self, module: torch.nn.Module) -> None:
        """Leave this rank its part. All ranks must call it."""
        at = 0
        for parameter in module.parameters(recurse=False):
            place = self._formatted.narrow(0, at, parameter.numel()).view(parameter.shape)
            at += parameter.numel()
            parameter.data = place.copy_(parameter)
        self._zero._convert_to_zero_parameters(module.parameters(recurse=False))  # noqa: SLF001 - what Init does itself


def _size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))
