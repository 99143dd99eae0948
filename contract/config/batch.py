"""[batch]: how many tokens an optimizer step sees, and in which portions."""

from pydantic import Field

from contract.config.base import Section


class Batch(Section):
    """The global batch decides about the optimisation, the micro-batch about memory and speed."""

    global_batch_size: int = Field(default=16, ge=1)
    """Samples of one optimizer step, all ranks together."""
    micro_batch_size: int = Field(default=4, ge=1)
    """Samples that one rank computes at once; raise it while memory lasts."""
    sequence_length: int = Field(default=128, ge=2)
    """Tokens of one sample."""

    def accumulation_steps(self, ranks: int) -> int:
        """Micro-steps of each rank in one optimizer step.

        Raises:
            ValueError: the global batch does not divide; the message names what would.
        """
        portion = self.micro_batch_size * ranks
        if self.global_batch_size % portion:
            below = self.global_batch_size // portion * portion
            fits = f"{below} or {below + portion}" if below else str(portion)
            raise ValueError(
                f"global_batch_size: {self.global_batch_size} is not a multiple of micro_batch_size * ranks = "
                f"{self.micro_batch_size} * {ranks} = {portion}; {fits} would be"
            )
        return self.global_batch_size // portion

    def divides(self, ranks: int) -> list[str]:
        """What is wrong with the batch on so many ranks, as `batch.key: sentence`; empty when it divides."""
        try:
            self.accumulation_steps(ranks)
        except ValueError as error:
            return [f"batch.{error}"]
        return []

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, all ranks together."""
        return self.global_batch_size * self.sequence_length
