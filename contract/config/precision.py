"""[precision]: the number format of weights and activations."""

from typing import Literal

from contract.config.base import Section


class Precision(Section):
    """Master weights, gradients and optimizer state are float32 whatever stands here."""

    dtype: Literal["fp32", "bf16"] = "bf16"
    """Format of the forward and backward pass. fp32 is for tests and for telling numerics from bugs."""
