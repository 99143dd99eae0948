"""A line of the metrics as named numbers: the same names in every tracker."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "loss": "train/loss",
        "val_loss": "validation/loss",
        "balance_loss": "train/balance_loss",
        "grad_norm": "train/grad_norm",
        "loss_scale": "train/loss_scale",
        "lr": "rate/last_layer",
        "lr_embedding": "rate/embedding",
        "tokens": "progress/tokens",
        "tokens_per_s": "speed/tokens_per_s",
        "step_s": "speed/step_s",
        "global_batch": "batch/global_batch",
        "micro_steps": "batch/micro_steps",
    }
)
_LARGEST: Mapping[str, str] = MappingProxyType(
    {"router_violation": "router/largest_violation", "router_starved": "router/most_starved"}
)


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The row's numbers under their names; what is not finite is left out, of a list over layers the largest counts."""
    found = {name: row.get(key) for key, name in _NAMES.items()}
    found |= {name: max(row.get(key) or (), default=None) for key, name in _LARGEST.items()}
    return {name: float(value) for name, value in found.items() if value is not None}
