"""[precision]: the number format of weights and activations."""

from typing import Literal

from contract.config.base import Section


class Precision(Section):
    """Master weights, gradients and optimizer state are float32 whatever stands here."""

    dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "bf16"
    """Format of the forward and backward pass. fp32 is for tests and for telling numerics from bugs. fp16 needs a
    device that has it, and scales the loss. fp8 is bf16 with the matrix products of dense layers in E4M3 forward and
    E5M2 backward (HYBRID); it needs compute capability 8.9 or more (Ada, Hopper)."""
    fp8_emulate: bool = False
    """Compute FP8 in software where the device has none: for tests of the numbers, slower than bf16."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        if self.fp8_emulate and self.dtype != "fp8":
            return [f"fp8_emulate: dtype is {self.dtype}, so there is nothing to emulate"]
        return []
