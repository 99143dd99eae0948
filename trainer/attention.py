"""Which kernel computes the attention, for heads whose queries and values differ in size (DeepSeek: 192 and 128).

Torch falls back in silence: its flash kernel refuses such heads, and without cuDNN's the slow ones are left. So the
fast ones are asked for first, and what runs is found out at the start, and said.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# Fastest first on devices of the Hopper kind; MATH keeps a matrix of length by length for each head.
_PREFERRED = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)
_LENGTH = 128  # of the trial; the kernels decide by head sizes, type and device


@contextmanager
def preferred_kernels(device: torch.device) -> Iterator[None]:
    """Around a training: the fast kernels first. On a CPU torch's own choice stands."""
    if device.type != "cuda":
        yield
        return
    with sdpa_kernel(list(_PREFERRED), set_priority=True):
        yield


def kernel_for(shape: Any, device: torch.device, dtype: torch.dtype) -> SDPBackend:
    """The kernel that computes this network's attention on this device, forward and backward.

    `shape`: transformers' configuration. Not a matter of time: the same device gives the same answer at each start.
    """
    if device.type != "cuda":
        return SDPBackend(torch._fused_sdp_choice(*_heads(shape, device, dtype), None, 0.0, True))  # noqa: SLF001
    return next((kernel for kernel in _PREFERRED if _computes(kernel, shape, device, dtype)), SDPBackend.MATH)


def _heads(shape: Any, device: torch.device, dtype: torch.dtype) -> list[torch.Tensor]:
    query = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    return [
        torch.zeros(1, 2, _LENGTH, size, device=device, dtype=dtype, requires_grad=True)
        for size in (query, query, shape.v_head_dim)
    ]


def _computes(kernel: SDPBackend, shape: Any, device: torch.device, dtype: torch.dtype) -> bool:
    try:
        with sdpa_kernel([kernel]):
            found = torch.nn.functional.scaled_dot_product_attention(
                *_heads(shape, device, dtype), is_causal=True
            )
            found.sum().backward()
    except RuntimeError:  # "No available kernel"
        return False
    return True
