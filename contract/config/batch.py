"""[batch]: how many tokens an optimizer step sees, and in which portions."""

from typing import Literal

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
    adaptive: Literal["off", "grow", "fixed-global-batch", "balance"] = "off"
    """Who changes the plan while training. grow: more accumulation, and so a larger global batch, while the devices
    idle; fixed-global-batch: larger micro-batches in fewer steps, the optimizer sees the same; balance: slower ranks
    get fewer samples; off: nobody, and nothing is measured for it."""
    source: Literal["phases", "nvml", "prometheus"] = "phases"
    """Where utilisation and memory come from: the step's own times and this process's memory (works on CPU too), the
    node agent's NVML figures, or a Prometheus server."""
    utilization_low: float = Field(default=0.6, gt=0, lt=1)
    """Below this share of working time a step counts as idle."""
    patience: int = Field(default=3, ge=1)
    """So many idle steps in a row, or measured speeds, come before a change."""
    memory_high: float = Field(default=0.92, gt=0, le=1)
    """From this share of the device's memory on the micro-batch shrinks."""
    memory_headroom: float = Field(default=0.1, ge=0, lt=1)
    """So far below memory_high it must be before anything grows."""
    max_micro_batch_size: int = Field(default=0, ge=0)
    """Never larger micro-batches than this; 0: only memory decides."""
    max_accumulation_steps: int = Field(default=64, ge=1)
    """Never more micro-steps than this in grow."""
    cooldown_steps: int = Field(default=10, ge=0)
    """Steps between two changes."""
    lr_rule: Literal["none", "sqrt", "linear"] = "none"
    """What a grown global batch does to the learning rate: nothing, its square root, or in proportion."""
    prometheus_url: str = ""
    """The server, as http://host:9090; for source = "prometheus"."""
    prometheus_utilization: str = "ciuic_gpu_utilization_ratio"
    """PromQL of the utilisation, 0 to 1, one series per device with the labels `node` and `gpu` (for DCGM's exporter:
    DCGM_FI_DEV_GPU_UTIL / 100 with relabelling)."""
    prometheus_memory: str = "ciuic_gpu_memory_used_bytes / ciuic_gpu_memory_total_bytes"
    """PromQL of the share of memory in use, likewise."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        found = []
        if self.lr_rule != "none" and self.adaptive != "grow":
            found.append('lr_rule: the global batch only changes with adaptive = "grow"')
        if self.memory_headroom >= self.memory_high:
            found.append(f"memory_headroom: {self.memory_headroom} leaves nothing below memory_high")
        if 0 < self.max_micro_batch_size < self.micro_batch_size:
            found.append(f"max_micro_batch_size: is below micro_batch_size = {self.micro_batch_size}")
        if self.source == "prometheus" and not self.prometheus_url:
            found.append('prometheus_url: source = "prometheus" needs it')
        return found

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
