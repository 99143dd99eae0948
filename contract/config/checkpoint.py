"""[checkpoint]: how often the run is saved and how many saves are kept."""

from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Checkpoint(Section):
    """Saves also happen at the last step, before a time limit and on order."""

    interval_steps: int = Field(default=100, ge=1)
    """Steps between two saves: the most that a failure can cost. A save stops training while it is written."""
    keep_last: int = Field(default=3, ge=2)
    """Complete checkpoints that are kept. At least 2, because a checkpoint can turn out damaged when it is needed."""
    model_change: Literal["refuse", "allow"] = "refuse"
    """What a resume does when [model] is not the checkpoint's: `allow` loads what fits and starts the rest new."""
