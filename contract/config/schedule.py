"""[schedule]: the learning rate over the run."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Schedule(Section):
    """Linear warm-up, then constant or a half cosine to a floor. Stateless: a resume computes the same rate."""

    kind: Literal["constant", "cosine"] = "cosine"
    """Curve after the warm-up."""
    unit: Literal["tokens", "steps"] = "steps"
    """What warmup and length count. Tokens stay true when the batch size changes during the run."""
    warmup: int = Field(default=0, ge=0)
    """Length of the linear rise from 0 to the peak, in `unit`."""
    length: int = Field(default=0, ge=0)
    """End of the annealing, in `unit`; 0 is the run's target. Past the end the rate stays at the floor."""
    floor_ratio: float = Field(default=0.1, ge=0, le=1)
    """Last learning rate as a share of the peak."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        if self.length and self.warmup > self.length:
            return [f"warmup: {self.warmup} {self.unit} are longer than the schedule's {self.length}"]
        return []
