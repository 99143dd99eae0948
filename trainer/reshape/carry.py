"""Carries a checkpoint over into an engine that did not write it. Each rank reads what it keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.distributed import Ranks
from trainer.errors import ConfigError, ReadError
from trainer.groups import Layout, counted_by
from trainer.model import fingerprint
from trainer.muon import Muon, takes_muon
from trainer.reshape.apart import Shape, whole_name, whole_shape
from trainer.reshape.change import Change, compare
from trainer.reshape.places import form, inner_optimizer, places, put_state, put_updates, settle, shares
from trainer.reshape.stored import Kind, Stored, open_stored

_COUNTERS = ("global_steps", "global_samples", "skipped_steps")


@dataclass(frozen=True, kw_only=True)
class Before:
    """What wrote a checkpoint: how many ranks, how they laid it out, and the model's parameters (`fingerprint`)."""

    directory: Path
    ranks: int
    form: str
    parameters: str
    layout: Layout

    def fits(self, engine: Any, ranks: int) -> bool:
        """Whether DeepSpeed itself can load it into this engine, on so many ranks."""
        return (self.ranks, self.form, self.parameters) == (ranks, form(engine), fingerprint(engine.module))

    def open(self) -> Stored:
        """Its files, to be read by parameter.

        Raises:
            ReadError: they are not what they should be.
        """
        return open_stored(self.directory, ranks=self.ranks, order=lambda d: counted_by(d, self.layout))


def carry_into(
    engine: Any, before: Before, ranks: Ranks, *, allowed: bool, moved: Callable[[], None]
) -> Change:
    """Load the checkpoint into an engine of another shape; another model's only if that is `allowed`.

    `moved` is called for each parameter. Returns what became of each name.

    Raises:
        ConfigError: on all ranks, when it is another model's and that is not allowed.
        ReadError: on all ranks, when the files do not hold what they should.
    """
    change, problem = None, ""
    try:
        stored = before.open()
        change = change_between(stored, engine.module)
        if change.none or allowed:
            carry_over(stored, change, engine, moved)
    except ReadError as error:
        problem = str(error)
    problems = {rank: text for rank, text in enumerate(ranks.gather(problem)) if text}
    if problems:
        raise ReadError("; ".join(f"rank {rank}: {text}" for rank, text in problems.items()))
    assert change is not None
    if not (change.none or allowed):
        raise ConfigError(
            f"{before.directory.name} is of another model than [model] describes: {change.sentence()}. Put [model] "
            'back, or load what fits with [checkpoint] model_change = "allow"'
        )
    return change


def shapes_of(model: torch.nn.Module) -> dict[str, Shape]:
    """Every parameter of the model with its whole shape, and every buffer that checkpoints keep."""
    # ZeRO-3 keeps the whole shape aside: a divided parameter's own is empty.
    own = {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in model.named_parameters()}
    size = shares(model)
    found = {whole_name(name): whole_shape(name, shape, size) for name, shape in own.items()}
    return found | {name: tuple(buffer.shape) for name, buffer in kept_buffers(model).items()}


def kept_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's buffers that are part of its state."""
    found: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:  # noqa: SLF001 - torch has no other way to ask
                found[whole_name(f"{prefix}.{name}" if prefix else name)] = buffer
    return found


def change_between(stored: Stored, model: torch.nn.Module) -> Change:
    """What becomes of each name of the checkpoint and of the model."""
    buffers = {name: tuple(buffer.shape) for name, buffer in stored.buffers.items()}
    return compare(stored.shapes | buffers, shapes_of(model))


def carry_over(stored: Stored, change: Change, engine: Any, moved: Callable[[], None]) -> None:
    """Weights, the optimizer's state, buffers and counters, as far as `change` says that they are kept.

    What is not kept stays as the model was built, its optimizer state zero; zero is also the state of what AdamW updated
    and Muon does now, or the other way. The optimizer counts updates for each of
    its tensors, which holds many parameters: a new one beside old ones has the old ones' count. `moved` is called
    for each parameter. All ranks must call it.

    Raises:
        ReadError: the files do not hold what the shapes promise.
    """
    with torch.no_grad():
        _parameters(stored, change, engine, moved)
        for name, buffer in kept_buffers(engine.module).items():
            if kept := change.kept(name, tuple(buffer.shape)):
                buffer.view(-1)[:kept].copy_(stored.buffers[name].view(-1)[:kept])
        settle(engine)
    for counter in _COUNTERS:
        setattr(engine, counter, stored.model_states[counter])
    scaler = stored.scaler()
    # Only between runs that look for the scale: one that the configuration fixes is the configuration's.
    if scaler.get("dynamic_loss_scale") and getattr(engine.optimizer, "dynamic_loss_scale", False):
        engine.optimizer.loss_scaler = scaler["loss_scaler"]


def _parameters(stored: Stored, change: Change, engine: Any, moved: Callable[[], None]) -> None:
    optimizer = inner_optimizer(engine)
    updates: dict[int, float] = {}
    keepers: dict[int, torch.Tensor] = {}
    shapes = shapes_of(engine.module)
    for place in places(engine):
        moved()
        kept = min(place.count, change.kept(place.name, shapes[place.name]) - place.start)
        if kept <= 0:
            continue
        stored.copy(place.name, Kind.WEIGHT, place.start, place.weight.narrow(0, 0, kept))
        kinds = _kinds(optimizer, place.name, shapes[place.name])
        count = stored.updates(place.name)
        if count and stored.keeps(place.name, kinds[0]):
            keepers[id(place.keeper)] = place.keeper
            updates[id(place.keeper)] = max(count, updates.get(id(place.keeper), 0.0))
            for kind in kinds:
                stored.copy(
                    place.name, kind, place.start, put_state(optimizer, place, kind).narrow(0, 0, kept)
                )
    for key, keeper in keepers.items():
        put_updates(optimizer, keeper, updates[key])
    if not keepers and not change.loaded:
        raise ReadError("the checkpoint and the model have no parameter in common")


def _kinds(optimizer: Any, name: str, shape: Shape) -> tuple[Kind, ...]:
    """What this optimizer keeps of the parameter."""
    muon = isinstance(optimizer, Muon) and takes_muon(name, len(shape))
    return (Kind.MOMENTUM,) if muon else (Kind.MEAN, Kind.SQUARE)
