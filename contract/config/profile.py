"""[profile]: traces of a few steps, and a table of where their time went."""

from typing import Annotated

from pydantic import Field

from contract.config.base import Section

Rank = Annotated[int, Field(ge=0)]


class Profile(Section):
    """`ciuic profile RUN` asks for one at any time; these make them by themselves."""

    at_steps: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """A profile begins after each of these steps."""
    every_steps: Annotated[int, Field(ge=0)] = 0
    """A profile begins each time when so many steps more are done; 0: none by itself."""
    steps: Annotated[int, Field(ge=1, le=20)] = 3
    """Steps of a profile, after one that warms the profiler up. They are slower; the table says by how much."""
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=8)] = Field(default_factory=lambda: [0])
    """Ranks that are profiled. Traces of many are files of many megabytes; one healthy and one slow rank tell most."""
    on_slow: Annotated[int, Field(ge=0, le=100)] = 2
    """So many profiles at most, over the whole run, are made by themselves when the run is found to be slow."""
    keep: Annotated[int, Field(ge=1, le=100)] = 10
    """The newest so many profiles of an attempt are kept."""
