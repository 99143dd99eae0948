"""[run] and [metadata]: what is trained for how long, and where its directory lies."""

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from contract.config.base import Section

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]

WATCHDOG_LABEL = "ciuic.io/watchdog"
CHECKPOINT_PATH_LABEL = "ciuic.io/checkpoint-path"
_BUCKET = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w.=/-]*))?\Z")


class Run(Section):
    name: Name = "run"
    """First part of the run id and of the Slurm job name: lower-case letters, digits, dashes."""
    root: str = "runs"
    """Directory of all runs, on the shared file system. Relative: to where `submit` is called."""
    steps: Annotated[int, Field(ge=0)] = 0
    """Optimiser steps to train for. Set either this or `tokens`; 0 means "not set"."""
    tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens to train on. Set either this or `steps`; 0 means "not set"."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1234
    """Seed of initialisation, data order and dropout."""

    def contradictions(self) -> list[str]:
        if (self.steps > 0) == (self.tokens > 0):
            return [f"steps: set exactly one of steps ({self.steps}) and tokens ({self.tokens})"]
        return []


class Metadata(Section):
    labels: dict[str, str] = Field(default_factory=dict)
    """Free labels. `ciuic.io/watchdog = "false"` makes the supervisor leave the run alone; checkpoints are copied to
    `ciuic.io/checkpoint-path = "s3://bucket/prefix"` (see [mirror])."""

    @property
    def watched(self) -> bool:
        """Whether the supervisor may act on this run (the label's default is yes)."""
        return self.labels.get(WATCHDOG_LABEL, "true").strip().lower() != "false"

    @property
    def bucket(self) -> tuple[str, str]:
        """(bucket, prefix) of the object storage that mirrors the checkpoints; ("", "") for none."""
        found = _BUCKET.match(self.labels.get(CHECKPOINT_PATH_LABEL, ""))
        return (found["bucket"], (found["prefix"] or "").strip("/")) if found else ("", "")

    def contradictions(self) -> list[str]:
        problems = []
        value = self.labels.get(WATCHDOG_LABEL, "true")
        if value.strip().lower() not in {"true", "false"}:
            problems.append(f'labels: {WATCHDOG_LABEL} is {value!r}; it takes "true" or "false"')
        if self.labels.get(CHECKPOINT_PATH_LABEL) and not self.bucket[0]:
            # Not echoed: whoever writes a key into an address must not find it in a log.
            problems.append(f'labels: {CHECKPOINT_PATH_LABEL} takes "s3://bucket/prefix" and nothing else')
        return problems
