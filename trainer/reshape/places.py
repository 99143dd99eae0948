"""Where a DeepSpeed engine keeps the float32 numbers of its parameters on this rank, by name.

Four keepers: no ZeRO, ZeRO 1 and 2, ZeRO 1 with bf16 (an optimizer of its own), ZeRO 3. What is written here reaches
the model that computes with `settle`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from trainer.errors import ConfigError
from trainer.groups import Group
from trainer.muon import Muon
from trainer.reshape.apart import to_whole
from trainer.reshape.stored import Kind


@dataclass(frozen=True, kw_only=True)
class Place:
    """This rank's part of one parameter: elements from `start` on, as views into what the optimizer keeps.

    `keeper` is the tensor that the optimizer steps; its state is shared by all parameters in it.
    """

    name: str
    start: int
    weight: torch.Tensor
    keeper: torch.Tensor
    offset: int

    @property
    def count(self) -> int:
        return int(self.weight.numel())


def form(engine: Any) -> str:
    """How this engine lays out a checkpoint; files of another form cannot be loaded by DeepSpeed itself."""
    update = " muon" if isinstance(inner_optimizer(engine), Muon) else ""
    apart = f" experts/{shares(engine.module)}" if shares(engine.module) > 1 else ""
    return f"zero-{engine.zero_optimization_stage()} {type(engine.optimizer).__name__}{update}{apart}"


def shares(module: torch.nn.Module) -> int:
    """By how many ranks the experts are divided."""
    return max((part.ep_size for part in module.modules() if hasattr(part, "ep_size")), default=1)


def places(engine: Any) -> Iterator[Place]:
    """Every part of a parameter that this rank keeps; those without elements here are left out.

    Experts that the ranks have apart are named and counted as in the whole model.

    Raises:
        ConfigError: the optimizer's numbers are not in memory.
    """
    size = shares(engine.module)
    if size == 1:
        yield from _places(engine)
        return
    own = {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in engine.module.named_parameters()}
    for place in _places(engine):
        done = 0
        for run in to_whole(place.name, own[place.name], dist.get_rank() % size, place.start, place.count):
            yield Place(
                name=run.name,
                start=run.at,
                weight=place.weight.narrow(0, done, run.count),
                keeper=place.keeper,
                offset=place.offset + done,
            )
            done += run.count


def _places(engine: Any) -> Iterator[Place]:
    zero = engine.optimizer
    named = dict(engine.module.named_parameters())
    if hasattr(zero, "fp32_partitioned_groups_flat"):
        yield from _sliced(zero, named)
    elif hasattr(zero, "update_lp_params"):
        yield from _consecutive(zero, named)
    else:
        for name, parameter in named.items():
            flat = parameter.data.view(-1)
            yield Place(name=name, start=0, weight=flat, keeper=parameter, offset=0)


def _consecutive(zero: Any, named: dict[str, Any]) -> Iterator[Place]:
    masters = _masters(zero)
    for name, parameter in named.items():
        part = parameter._hp_mapping  # noqa: SLF001 - None where this rank keeps nothing of it
        if part is not None:
            yield Place(
                name=name,
                start=part.lp_fragment_address.start,
                weight=part.hp_fragment.data,
                keeper=masters[part.param_group_index],
                offset=part.hp_fragment_address.start,
            )


def _sliced(zero: Any, named: dict[str, Any]) -> Iterator[Place]:
    if getattr(zero, "swap_optimizer", False):
        raise ConfigError(
            "[deepspeed] an optimizer that lives on NVMe cannot take a checkpoint of another shape"
        )
    for name, parameter in named.items():
        group, offset, length = zero.grad_position[zero.get_param_id(parameter)]
        start = length * zero._get_param_partition_rank(parameter)  # noqa: SLF001 - as set_full_hp_param does
        count = min(length, parameter.ds_numel - start)  # the last ranks' parts are padded
        if count > 0:
            keeper = zero.fp32_partitioned_groups_flat[group]
            weight = keeper.data.narrow(0, offset, count)
            yield Place(name=name, start=start, weight=weight, keeper=keeper, offset=offset)


def keepers(engine: Any, groups: Sequence[Group]) -> dict[str, torch.Tensor]:
    """The tensor that the optimizer steps on this rank for each parameter, also where it has nothing of it."""
    zero = engine.optimizer
    named = dict(engine.module.named_parameters())
    if hasattr(zero, "fp32_partitioned_groups_flat"):
        flat = zero.fp32_partitioned_groups_flat
        return {name: flat[zero.grad_position[zero.get_param_id(p)][0]] for name, p in named.items()}
    if hasattr(zero, "update_lp_params"):
        masters = _masters(zero)
        return {name: masters[slot] for slot, group in enumerate(groups) for name in group.names}
    return named


def _masters(zero: Any) -> Sequence[torch.Tensor]:
    found: Sequence[torch.Tensor] = (
        getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_groups_flat_partition
    )
    return found


def put_state(optimizer: Any, place: Place, kind: Kind) -> torch.Tensor:
    """The optimizer's numbers of this kind for the place, as a view; zeros until they are written."""
    found = optimizer.state[place.keeper].setdefault(kind.value, torch.zeros_like(place.keeper.data))
    state: torch.Tensor = found.view(-1).narrow(0, place.offset, place.count)
    return state


def put_updates(optimizer: Any, keeper: torch.Tensor, updates: float) -> None:
    """How many updates the optimizer has made of this tensor, in the type that it counts with."""
    torchs_own = isinstance(optimizer, torch.optim.AdamW)
    optimizer.state[keeper]["step"] = (
        torch.tensor(updates, dtype=torch.float32, device=keeper.device) if torchs_own else int(updates)
    )


def clear_padding(engine: Any) -> None:
    """Zero what fills up the last ranks' parts under ZeRO 3: DeepSpeed leaves there what it found in memory.

    Nothing computes with it, but it need not be finite, and the weights are asked whether they are.
    """
    zero = engine.optimizer
    if hasattr(zero, "fp32_partitioned_groups_flat") and not getattr(zero, "swap_optimizer", False):
        for parameter in engine.module.parameters():
            group, offset, length = zero.grad_position[zero.get_param_id(parameter)]
            start = length * zero._get_param_partition_rank(parameter)  # noqa: SLF001
            real = max(0, min(length, parameter.ds_numel - start))
            zero.fp32_partitioned_groups_flat[group].data.narrow(0, offset + real, length - real).zero_()


def inner_optimizer(engine: Any) -> Any:
    """The AdamW or Muon that does the arithmetic, within DeepSpeed's optimizer or without one."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


def settle(engine: Any) -> None:
    """Bring what was written into the places to the model that computes. All ranks must call it."""
    zero = engine.optimizer
    if hasattr(zero, "fp32_partitioned_groups_flat"):
        for group in range(len(zero.fp32_partitioned_groups_flat)):
            zero._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 - as its own loading does
        if zero.persistent_parameters:
            zero.persistent_parameters[0].partition(zero.persistent_parameters)
        zero.checkpoint_event_epilogue()
    elif hasattr(zero, "update_lp_params"):
        zero.update_lp_params()
