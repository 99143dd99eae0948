"""[deepspeed]: ZeRO, communication, and DeepSpeed's own JSON. Nothing here imports DeepSpeed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from contract.config.base import Section

# Top-level keys that the program sets itself, from the sections named; in the JSON they may only say the same.
OWNED: Mapping[str, str] = {
    "train_batch_size": "batch.global_batch_size",
    "train_micro_batch_size_per_gpu": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch",
    "gradient_clipping": "optimizer.gradient_clipping",
}
# Keys whose meaning belongs to another section altogether: refused, with the place where it is said.
ELSEWHERE: Mapping[str, str] = {
    "optimizer": "[optimizer]",
    "scheduler": "[schedule]",
    "fp16": "[precision]",
    "managed_gradient_accumulation": "nothing: the trainer divides gradients itself",
    "pipeline": "nothing: pipelines are not supported",
}
# What DeepSpeed reads and we pass on. It ignores unknown keys silently, so the list is ours to keep.
PASSED: frozenset[str] = frozenset(
    {
        "activation_checkpointing",
        "aio",
        "bf16",
        "checkpoint",
        "comms_logger",
        "communication_data_type",
        "csv_monitor",
        "data_types",
        "disable_allgather",
        "dump_state",
        "expert_parallel",
        "flops_profiler",
        "gradient_predivide_factor",
        "memory_breakdown",
        "prescale_gradients",
        "seed",
        "steps_per_print",
        "tensorboard",
        "torch_autocast",
        "wall_clock_breakdown",
        "wandb",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "zero_optimization",
    }
)


class DeepSpeed(Section):
    """How states are divided over the ranks. Keys of the JSON beat our defaults, never an explicit key of ours."""

    zero_stage: int = Field(default=2, ge=0, le=3)
    """What is divided: 1 optimizer states, 2 also gradients, 3 also weights. 0 divides nothing (fp32 only)."""
    reduce_bucket_size: int = Field(default=50_000_000, ge=1)
    """Elements reduced at once: smaller needs less memory, larger fewer messages (DeepSpeed: 500 million)."""
    offload_optimizer: bool = False
    """Keep optimizer states and the update in the host's memory: slower, frees device memory."""
    timeout_s: int = Field(default=600, ge=10)
    """Seconds that a collective of the training may take before torch gives up (DeepSpeed: 600)."""
    config: str = ""
    """A DeepSpeed JSON file; "" has none. Relative: to the recipe, else to the working directory."""
    inline: dict[str, Any] = Field(default_factory=dict)
    """The same keys as in DeepSpeed's JSON, written here instead of in a file."""

    def settings(self) -> dict[str, Any]:
        """DeepSpeed's own keys from the file or the table.

        Raises:
            ValueError: the file is missing, unreadable or not a JSON object; the message is `config: sentence`.
        """
        if not self.config:
            return dict(self.inline)
        try:
            value = json.loads(Path(self.config).read_bytes())
        except (OSError, ValueError) as error:
            raise ValueError(f"config: {self.config}: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"config: {self.config}: a JSON object was expected")  # noqa: TRY004
        return value

    def contradictions(self) -> list[str]:
        """Problems between keys of this section, the JSON file included."""
        if self.config and self.inline:
            return ["inline: set either config or inline, not both"]
        try:
            settings = self.settings()
        except ValueError as error:
            return [str(error)]
        found = [f"{'config' if self.config else 'inline'}.{text}" for text in _unusable_keys(settings)]
        zero = settings.get("zero_optimization")
        if isinstance(zero, dict) and "zero_stage" in self.model_fields_set:
            stage = zero.get("stage", self.zero_stage)
            if stage != self.zero_stage:
                found.append(
                    f"zero_stage: {self.zero_stage}, but the JSON's zero_optimization.stage is {stage}"
                )
        return found


def _unusable_keys(settings: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key in settings:
        if key in ELSEWHERE:
            found.append(f"{key}: belongs into {ELSEWHERE[key]}")
        elif key not in OWNED and key not in PASSED:
            found.append(f"{key}: DeepSpeed has no such top-level key (it would ignore it silently)")
    return found
