"""[monitor]: how progress is watched."""

from typing import Annotated

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
    unknown_alert_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    """After so long without a reliable answer (queue or file system silent) people are told. Nothing is killed."""
