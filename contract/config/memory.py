"""[memory]: time traded for memory. The numbers stay the same but for the order of summation."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Memory(Section):
    """What is computed twice, or in portions, so that it need not be kept."""

    recompute: Literal["none", "half", "all"] = "none"
    """Decoder layers whose activations are computed again in the backward pass: none, every second, all. All costs
    about a fifth of the speed and keeps one layer's activations; first try whether a smaller micro-batch fits."""
    loss_chunk_tokens: int = Field(default=0, ge=0)
    """Logits and loss of so many tokens at a time; 0: of the whole micro-batch, whose logits take tokens * vocabulary *
    6 bytes and as much again for the gradient. 1024 is a good value for large vocabularies."""
