"""What the rounds leave for whoever shows the runs: values that never change, swapped whole."""

from dataclasses import dataclass

from contract.config import RunConfig
from contract.history import History
from supervisor.core.actions import Action
from supervisor.core.observation import Observation
from supervisor.core.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One round's look at a run, what it means, and what was decided on it. `at`: UTC seconds."""

    at: float
    observation: Observation
    verdict: Verdict
    actions: tuple[Action, ...]
    config: RunConfig


@dataclass(frozen=True, kw_only=True)
class RunSeen:
    """One run as its last round left it. `shown` is None while there was no look in this process."""

    run: str
    history: History
    shown: Shown | None = None

    @property
    def observation(self) -> Observation | None:
        return self.shown.observation if self.shown else None

    @property
    def seen_at(self) -> float | None:
        """UTC seconds of the look."""
        return self.shown.at if self.shown else None
