"""How far a run is: the few numbers that, with the weights, decide about everything that follows."""

from dataclasses import dataclass

from contract.sampling import Taken


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands between two optimizer steps.

    `step` counts optimizer steps, those included whose update was dropped for its numbers; `tokens` targets seen over
    all ranks; `position` is the first sampler position that has not been consumed.
    """

    step: int = 0
    tokens: int = 0
    position: int = 0

    def after(self, taken: Taken, tokens: int) -> "Progress":
        """Progress once the step over these samples is done."""
        return Progress(step=self.step + 1, tokens=self.tokens + tokens, position=taken.end)
