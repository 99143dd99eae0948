"""[monitor]: how progress is watched."""

from typing import Annotated, Literal

from pydantic import Field

from contract.config.base import Section

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Monitor(Section):
    """Limits fit the phase (design rule 8): each is the ceiling for a phase until the run has a history."""

    beat_s: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """Seconds between two beats of a node agent."""
    start_s: Seconds = 900.0
    """Ceiling for imports, process group set-up and model construction."""
    compile_s: Seconds = 1800.0
    """Ceiling for compilation."""
    load_s: Seconds = 1800.0
    """Ceiling for loading a checkpoint."""
    first_step_s: Seconds = 600.0
    """Ceiling for one movement of the counter before the first step of a generation has ended."""
    step_s: Seconds = 300.0
    """Ceiling for one movement of the counter inside a step, once steps run."""
    evaluate_s: Seconds = 1800.0
    """Ceiling for one movement of the counter during validation."""
    save_s: Seconds = 1800.0
    """Ceiling for a save."""
    hang_factor: Annotated[float, Field(ge=2, le=100)] = 8.0
    """A step is late when it takes this many times the run's own usual time (within floor and ceiling)."""
    hang_floor_s: Annotated[float, Field(ge=1, le=3600)] = 8.0
    """No limit is ever shorter than this, whatever the history says."""
    node_silent_s: Annotated[float, Field(ge=2, le=3600)] = 12.0
    """A node whose beat stands still for so long, while others move, counts as lost."""
    slow_factor: Annotated[float, Field(ge=1.05, le=100)] = 1.3
    """Steps are slow when they take this many times the run's own usual time, and stand out of its own scatter."""
    slow_s: Annotated[float, Field(ge=10, le=86_400)] = 180.0
    """For so much training time steps must have been slow before people are told. Nothing is killed for it."""
    on_slow: Literal["ignore", "tell", "replace"] = "tell"
    """replace: a node that is named as slow for longer than slow_replace_s gives way to a spare, after a checkpoint."""
    slow_replace_s: Seconds = 1800.0
    """For so long a node must have been slow before on_slow = "replace" takes a spare instead."""
    spike_sigma: Annotated[float, Field(ge=3, le=1000)] = 10.0
    """Loss or gradient norm spikes when it stays above the run's own median by so many robust standard deviations."""
    on_loss_spike: Literal["ignore", "tell", "rollback", "stop"] = "tell"
    """A spike of loss or gradient norm that lasts. rollback: restart from a checkpoint before it and jump its data.
    Numbers that are not finite follow numerics.on_nan."""
    on_loss_scale: Literal["ignore", "tell", "rollback", "stop"] = "tell"
    """The loss scale of fp16 has come down to its minimum: gradients are about to be lost."""
    unknown_alert_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    """After so long without a reliable answer (queue or file system silent) people are told. Nothing is killed."""
