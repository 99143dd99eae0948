"""[checkpoint]: how often the run is saved, how a save goes on beside the training, and which saves are kept."""

import re
from typing import Literal

from pydantic import Field

from contract.config.base import Section


class Checkpoint(Section):
    """Saves also happen at the last step, before a time limit and on order.

    With `interval_steps` and `interval_minutes` both 0 the interval is found by itself, from what a save costs this
    run and how often it fails; with both set, whichever comes first.
    """

    interval_steps: int = Field(default=0, ge=0)
    """Steps between two saves; 0: not by steps."""
    interval_minutes: float = Field(default=0.0, ge=0, le=10_080)
    """Minutes between two saves; 0: not by minutes."""
    auto_least_minutes: float = Field(default=2.0, gt=0, le=10_080)
    """An interval that is found by itself is never shorter."""
    auto_most_minutes: float = Field(default=60.0, gt=0, le=10_080)
    """An interval that is found by itself is never longer."""
    mtbf_hours: float = Field(default=24.0, gt=0, le=100_000)
    """Expected hours of training between two failures, believed until the run has a history of its own."""
    background: bool = True
    """Training goes on as soon as the state is copied into the host's memory, which must have room for one such
    copy of each rank. false: it stands still until everything is on disk, and no memory is needed."""
    while_saving: Literal["wait", "skip"] = "wait"
    """When a save is due and the one before is still being written: wait for its end, or leave the new one out."""
    on_error: Literal["continue", "stop"] = "continue"
    """When a checkpoint could not be written: tell people and train on, or end with the error. The last save of a
    run, and the one before it leaves its nodes, always end with the error."""
    keep_last: int = Field(default=3, ge=2)
    """Complete checkpoints that are kept. At least 2, because a checkpoint can turn out damaged when it is needed."""
    model_change: Literal["refuse", "allow"] = "refuse"
    """What a resume does when [model] is not the checkpoint's: `allow` loads what fits and starts the rest new."""
    keep_every_steps: int = Field(default=0, ge=0)
    """Of every so many steps the first checkpoint is kept for ever; 0: none is."""
    keep_best: int = Field(default=0, ge=0, le=100)
    """So many checkpoints with the lowest validation loss are kept."""
    foreign_glob: str = ""
    """Where a program of your own ([job] command) leaves its checkpoints, as in `/shared/out/checkpoint-*/trainer_state.json`
    (best: the file that it writes last). Relative: to the run's directory. Only looked at, for `status` and budgets."""
    foreign_step: str = r"(\d+)(?!.*\d)"
    """Regular expression whose group is the step in such a path; the default takes the last number."""

    def contradictions(self) -> list[str]:
        found = []
        if self.auto_least_minutes > self.auto_most_minutes:
            most = self.auto_most_minutes
            found.append(
                f"auto_least_minutes: {self.auto_least_minutes:g} is more than auto_most_minutes ({most:g})"
            )
        try:
            groups = re.compile(self.foreign_step).groups
        except re.error as error:
            return [*found, f"foreign_step: no regular expression: {error}"]
        if groups != 1:
            found.append(f"foreign_step: takes exactly one group, for the step; it has {groups}")
        return found
