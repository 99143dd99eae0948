"""[schedule]: the learning rate over the run."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section

Curve = Literal["cosine", "quarter_cosine", "as_printed", "wsd", "constant"]


class Schedule(Section):
    """Warm-up layer by layer, then annealing, both over consumed tokens. `ciuic check CONFIG --plot` draws it.

    The rate is computed from this section before each step: a resume with other values follows them at once.
    """

    kind: Curve = "cosine"
    """After the warm-up: half a cosine to the floor; a quarter of one (steepest at the end); the published formula
    cos(π·(1-p)/2) to the letter, which rises from 0; stay, then fall in a line (wsd); stay."""
    unit: Literal["tokens", "steps"] = "steps"
    """What warmup and length count. A step stands for global_batch_size * sequence_length tokens: the schedule runs on
    tokens, which stay true when the batch changes during the run."""
    warmup: int = Field(default=0, ge=0)
    """Length of the linear rise from 0 to the peak, in `unit`."""
    layerwise: bool = True
    """Layer i warms up for warmup * i / layers: the embedding and layer 0 start at once, the last layer comes last.
    false gives every layer the whole warm-up."""
    length: int = Field(default=0, ge=0)
    """End of the annealing, in `unit`; 0 is the run's target. Past the end the rate stays as it is there."""
    floor_ratio: float = Field(default=0.1, ge=0, le=1)
    """Last learning rate as a share of the peak (cosine, quarter_cosine, wsd)."""
    decay_share: float = Field(default=0.2, gt=0, le=1)
    """wsd: the last so much of the annealing falls, the rest stays at the peak."""
    adaptive_from: float = Field(default=0, ge=0, lt=1)
    """From this share of the training on, annealing goes faster while the smoothed loss stands still and slower while
    it improves, and ends at the same place at the same time. 0: never."""
    adaptive_slowest: float = Field(default=0.5, gt=0, le=1)
    """Slowest speed of adaptive annealing; 1 is the speed without it."""
    adaptive_fastest: float = Field(default=2.0, ge=1)
    """Fastest speed of adaptive annealing."""
    adaptive_smoothing: float = Field(default=0.02, gt=0, le=0.5)
    """Share of the training over which the loss is smoothed. Larger is calmer and later."""
    adaptive_improvement: float = Field(default=0.1, gt=0)
    """The improvement at which annealing keeps its usual speed: by which share the loss would fall over a whole
    training at the present pace. Twice as much gives the slowest speed, none the fastest."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        found: list[str] = []
        if self.length and self.warmup > self.length:
            found.append(f"warmup: {self.warmup} {self.unit} are longer than the schedule's {self.length}")
        if self.adaptive_from and self.kind in {"constant", "as_printed"}:
            found.append(f"adaptive_from: {self.kind} does not anneal; use cosine, quarter_cosine or wsd")
        return found
