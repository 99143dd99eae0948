"""[numerics]: what happens when a number goes wrong. The weights never take a step that is not finite."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Numerics(Section):
    """Answers to NaN and infinity in loss, gradients or parameters, and to spikes of the gradient norm."""

    on_nan: Literal["roll-back", "skip", "lower-scale", "stop"] = "roll-back"
    """Loss or gradient not finite on any rank. roll-back: restart from the newest checkpoint before it and jump the
    step's data. skip: drop the step's update on all ranks and go on. lower-scale (fp16): the same, and halve the
    loss scale. stop: end the run and tell. Parameters that are not finite cannot be skipped: they roll back or stop."""
    skip_limit: int = Field(default=8, ge=1)
    """So many steps dropped one after the other end the training; then roll-back rolls back, the others stop."""
    roll_back_limit: int = Field(default=4, ge=1)
    """So many roll-backs at the same step end the run: other data did not help, so it is not the data."""
    spike_factor: float = Field(default=0.0, ge=0)
    """Drop a step whose gradient norm is more than so many times the median of the last ones; 0 drops none. 10 is
    a cautious value: clipping already bounds what a spike can do to the weights."""
    spike_window: int = Field(default=64, ge=8)
    """Steps whose norms make the median. A quarter of them must be there before a spike can be told."""
    embedding_clipping: float = Field(default=0.0, ge=0)
    """Tighter limit for the norm of the embedding's gradient, after the global clipping; 0 has none."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        if 0 < self.spike_factor <= 1:
            return [f"spike_factor: {self.spike_factor:g} would drop every other step; use more than 1, or 0"]
        return []
