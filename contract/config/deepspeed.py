"""[deepspeed]: ZeRO, communication, and DeepSpeed's own JSON. Nothing here imports DeepSpeed."""

import json
from pathlib import Path
from typing import Any

from pydantic import Field

from contract.config.base import Section
from contract.config.deepspeed_keys import unusable


class DeepSpeed(Section):
    """How states are divided over the ranks. Keys of the JSON beat our defaults, never an explicit key of ours.

    What the JSON says about batch, precision, clipping and AdamW goes into [batch], [precision] and [optimizer].
    """

    zero_stage: int = Field(default=2, ge=0, le=3)
    """What is divided: 1 optimizer states, 2 also gradients, 3 also weights. 0 divides nothing (fp32 only)."""
    reduce_bucket_size: int = Field(default=50_000_000, ge=1)
    """Elements reduced at once: smaller needs less memory, larger fewer messages (DeepSpeed: 500 million)."""
    expert_parallel: int = Field(default=1, ge=1)
    """Ranks over which the routed experts are divided (DeepSpeed's AutoEP): each computes its own and tokens travel to
    them. It helps when a layer's experts together do not fit beside each other, or ZeRO 3 spends its time gathering
    them; for small models the travel costs more than it saves. Divides ranks and experts; ZeRO 2 or 3."""
    offload_optimizer: bool = False
    """Keep optimizer states in the host's memory and update there: frees 12 bytes of device memory for each parameter
    that a rank keeps, and costs the way of gradients and weights and an update by the CPU in each step. Helps when the
    states do not fit and the batch is large (the step is rare then); first try a higher zero_stage or more ranks. On a
    CPU it changes nothing."""
    offload_param: bool = False
    """Keep the weights in the host's memory as well (ZeRO 3): each is fetched for each pass. Only where nothing else
    makes a model fit; the slowest of all choices."""
    timeout_s: int = Field(default=600, ge=10)
    """Seconds that a collective of the training may take before torch gives up (DeepSpeed: 600)."""
    config: str = ""
    """A DeepSpeed JSON file; "" has none. Relative: to the recipe, else to the working directory."""
    inline: dict[str, Any] = Field(default_factory=dict)
    """The same keys as in DeepSpeed's JSON, written here instead of in a file."""

    def settings(self) -> dict[str, Any]:
        """DeepSpeed's own keys from the file or the table, without those that say "auto": that is our default.

        Raises:
            ValueError: the file is missing, unreadable or not a JSON object; the message is `config: sentence`.
        """
        if not self.config:
            return _decided(self.inline)
        try:
            value = json.loads(Path(self.config).read_bytes())
        except (OSError, ValueError) as error:
            raise ValueError(f"config: {self.config}: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"config: {self.config}: a JSON object was expected")  # noqa: TRY004
        return _decided(value)

    def contradictions(self) -> list[str]:
        """Problems between keys of this section, the JSON file included."""
        if self.offload_param and self.zero_stage < 3:
            return [f"offload_param: ZeRO {self.zero_stage} does not divide the weights; use zero_stage = 3"]
        if self.config and self.inline:
            return ["inline: set either config or inline, not both"]
        try:
            settings = self.settings()
        except ValueError as error:
            return [str(error)]
        return [f"{'config' if self.config else 'inline'}.{text}" for text in unusable(settings)]


def _decided(settings: dict[str, Any]) -> dict[str, Any]:
    """Without "auto", which other trainers fill in. `data_types` has an "auto" of DeepSpeed's own."""
    return {
        key: _decided(value) if isinstance(value, dict) and key != "data_types" else value
        for key, value in settings.items()
        if value != "auto"
    }
