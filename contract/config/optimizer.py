"""[optimizer]: AdamW or Muon, and the clipping of the gradient."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Optimizer(Section):
    """AdamW or Muon, with decay on matrices only (norms and vectors are never decayed)."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: the update of each hidden matrix is made orthogonal, each expert's by itself; embedding, head, norms, biases
    and routers stay with AdamW. lr and weight_decay mean the same for both. Muon often needs fewer tokens for the same
    loss and keeps one number per weight instead of two; it costs some matrix products a step, so it pays with large
    batches, and least for many small experts. Start a run with it: a change starts the optimizer's state anew."""

    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate per optimizer step. The default suits the small model; DeepSeek-V3 used 2.2e-4."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment (DeepSeek-V3: 0.9)."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the second moment (DeepSeek-V3: 0.95); higher remembers gradient sizes longer."""
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    """Decay of Muon's momentum (Nesterov's)."""
    eps: float = Field(default=1e-8, gt=0)
    """Term that keeps the division by the second moment finite."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled weight decay on matrices (DeepSeek-V3: 0.1)."""
    gradient_clipping: float = Field(default=1.0, ge=0)
    """Largest global gradient norm; 0 does not clip. Always written out: DeepSpeed's own default moved from 0 to 1."""
