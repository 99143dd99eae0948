"""Which parameters share a learning rate and a decay. The optimizer's state is positional: this order is its format."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import torch

from contract.config.optimizer import Optimizer
from contract.schedule import EMBEDDING
from trainer.muon import takes_muon

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_FURTHER = re.compile(
    r"(?:^|\.)layers\.(\d+)\.eh_proj\."
)  # predicts one token further, by the last layer's rate
_EMBEDDING = re.compile(r"(?:^|\.)embed_tokens\.")


class Layout(StrEnum):
    """How the optimizer's groups are made. A checkpoint loads into the layout that wrote it."""

    BY_LAYER = "by-layer"
    BY_MATRIX = "by-matrix"  # as BY_LAYER, with what Muon updates in groups of its own
    BY_DECAY = (
        "by-decay"  # two groups, every layer with the last one's rate: checkpoints from before BY_LAYER
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group of the optimizer. `rate` counts the groups of `contract.schedule.Course`. `muon`: not by AdamW.

    `experts` names the ranks that have the same of the experts, as DeepSpeed calls them; "": all ranks have the same.
    """

    rate: int
    decays: bool
    muon: bool
    names: tuple[str, ...]
    experts: str = ""

    @property
    def name(self) -> str:
        """The name in the plot; for experts what DeepSpeed finds their ranks by."""
        if self.experts:
            return self.experts
        return EMBEDDING if self.rate == 0 else f"layer-{self.rate - 1}"


def rate_group(name: str, layers: int) -> int:
    """The rate group of this parameter: the embedding, its layer, and for all that comes after them the last layer."""
    if _EMBEDDING.search(name):
        return 0
    layer = _LAYER.search(name)
    return 1 + min(int(layer[1]), layers - 1) if layer else layers


def decays(name: str, dimensions: int) -> bool:
    """Whether decay pulls at this parameter: at matrices, but never at norms, biases and the embedding."""
    return dimensions >= 2 and not name.endswith(".bias") and not _EMBEDDING.search(name)


def groups_of(model: torch.nn.Module, layers: int, layout: Layout) -> list[Group]:
    """The optimizer's groups: by rate from the input to the output, decayed first; names sorted; none empty.

    They do not depend on [schedule], so that a resume may change it.
    """
    # ZeRO-3 keeps the whole shape aside: a divided parameter's own is empty.
    dimensions = {name: len(getattr(p, "ds_shape", p.shape)) for name, p in model.named_parameters()}
    apart = {name: p.group_name for name, p in model.named_parameters() if not getattr(p, "allreduce", True)}
    return grouped(dimensions, layers, layout, apart)


def grouped(
    dimensions: Mapping[str, int],
    layers: int,
    layout: Layout,
    experts: Mapping[str, str] = MappingProxyType({}),
) -> list[Group]:
    """The groups of parameters with these names and numbers of dimensions; `experts`: those that ranks have apart."""
    members: dict[tuple[int, bool, bool, str], list[str]] = {}
    for name, count in sorted(dimensions.items()):
        if layout is Layout.BY_DECAY:
            key = (layers, count >= 2, False, "")
        else:
            muon = layout is Layout.BY_MATRIX and takes_muon(name, count)
            key = (rate_group(name, layers), decays(name, count), muon, experts.get(name, ""))
        members.setdefault(key, []).append(name)
    order = sorted(members, key=lambda key: (key[0], not key[1], not key[2], key[3]))
    return [
        Group(rate=key[0], decays=key[1], muon=key[2], names=tuple(members[key]), experts=key[3])
        for key in order
    ]


def counted_by(dimensions: Mapping[str, int], layout: Layout) -> list[str]:
    """The names in the order in which an optimizer with these groups counts them."""
    numbers = {int(found[1]) for name in dimensions if (found := _LAYER.search(name))}
    further = {int(found[1]) for name in dimensions if (found := _FURTHER.search(name))}
    layers = 1 + max(numbers - further, default=0)
    return [name for group in grouped(dimensions, layers, layout) for name in group.names]


def for_optimizer(
    model: torch.nn.Module, groups: Sequence[Group], *, weight_decay: float
) -> list[dict[str, Any]]:
    """The groups as torch's optimizers take them."""
    parameters = dict(model.named_parameters())
    return [
        {
            "name": group.name,
            "params": [parameters[name] for name in group.names],
            "weight_decay": weight_decay if group.decays else 0.0,
            **({"muon": True} if group.muon else {}),
            **({"moe": True} if group.experts else {}),
        }
        for group in groups
    ]


def follow_config(engine: Any, groups: Sequence[Group], wanted: Optimizer) -> None:
    """Undo what loading does: a checkpoint brings the optimizer's settings back, and the config's must count.

    The rate is not among them: it is written before each step.
    """
    for found, group in zip(engine.optimizer.param_groups, groups, strict=True):
        found["weight_decay"] = wanted.weight_decay if group.decays else 0.0
        found["name"] = group.name
        found["betas"], found["eps"] = (wanted.beta1, wanted.beta2), wanted.eps
        if "momentum" in found:
            found["momentum"] = wanted.muon_momentum
