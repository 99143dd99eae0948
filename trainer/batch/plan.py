"""How one optimizer step is cut into micro-batches. Pure; the same on all ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.config.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`samples[r]` of rank r in one optimizer step, in the same number of micro-steps on every rank.

    Every rank has at least one sample in each micro-step: a forward pass without data would leave the others waiting
    in the collectives of theirs. Sizes that do not divide differ by one, the larger ones first.
    """

    samples: tuple[int, ...]
    micro_steps: int

    @property
    def global_batch(self) -> int:
        """Samples of the whole step."""
        return sum(self.samples)

    @property
    def micro_batch(self) -> int:
        """The largest number of samples that one rank computes at once: what memory depends on."""
        return -(-max(self.samples) // self.micro_steps)

    def size(self, rank: int, micro_step: int) -> int:
        """Samples of this rank in this micro-step."""
        whole, rest = divmod(self.samples[rank], self.micro_steps)
        return whole + (micro_step < rest)

    def portions(self, rank: int) -> tuple[range, ...]:
        """Where in the step's samples this rank's portions lie: micro-step after micro-step, in each rank after rank."""
        found, start = [], 0
        for micro_step in range(self.micro_steps):
            sizes = [self.size(other, micro_step) for other in range(len(self.samples))]
            before = start + sum(sizes[:rank])
            found.append(range(before, before + sizes[rank]))
            start += sum(sizes)
        return tuple(found)

    def __str__(self) -> str:
        """As a sentence has it: `16 samples in 2 micro-steps of 4 a rank`, `16 samples in 2 micro-steps, 11 5 a rank`."""
        steps = "1 micro-step" if self.micro_steps == 1 else f"{self.micro_steps} micro-steps"
        if any(count % self.micro_steps for count in self.samples):
            return f"{self.global_batch} samples in {steps}, {_each(self.samples)} a rank"
        sizes = [count // self.micro_steps for count in self.samples]
        return f"{self.global_batch} samples in {steps} of {_each(sizes)} a rank"

    def state(self) -> dict[str, Any]:
        """For a checkpoint; short when all ranks have the same."""
        even = len(set(self.samples)) == 1
        return {
            "ranks": len(self.samples),
            "samples": self.samples[0] if even else list(self.samples),
            "micro_steps": self.micro_steps,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Plan":
        """The plan that `state` was made of."""
        samples = state["samples"]
        spread = (samples,) * state["ranks"] if isinstance(samples, int) else tuple(samples)
        return cls(samples=spread, micro_steps=state["micro_steps"])


def _each(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else " ".join(map(str, counts))


def configured(batch: Batch, ranks: int) -> Plan:
    """The plan that [batch] describes: every rank the same.

    Raises:
        ValueError: the global batch does not divide.
    """
    micro_steps = batch.accumulation_steps(ranks)
    return Plan(samples=(batch.micro_batch_size * micro_steps,) * ranks, micro_steps=micro_steps)
