"""A checkpoint read by parameter, whatever number of ranks and ZeRO stage wrote it.

ZeRO stores flat stretches of memory, cut by rank. Which element of which parameter lies where follows from the shapes,
so any stretch of any parameter can be read straight from the files: they are mapped, and a rank reads what it keeps
and nothing else. Nothing is converted, so nothing half-converted can be left behind.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from trainer.errors import ReadError
from trainer.reshape.apart import Shape, is_apart, to_stack, whole_name, whole_shape


class Kind(StrEnum):
    """The numbers that a checkpoint keeps for each element of a parameter, all float32."""

    WEIGHT = "weight"
    MEAN = "exp_avg"
    SQUARE = "exp_avg_sq"
    MOMENTUM = "momentum_buffer"  # Muon's, instead of the two


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Where elements of a parameter lie: `count` from `offset` on in flat tensor `slot` of the file of `rank`."""

    rank: int
    slot: int
    offset: int
    count: int


class Stored(ABC):
    """One checkpoint's parameters (`shapes`), the model's `buffers`, and DeepSpeed's counters (`model_states`)."""

    def __init__(self, model_states: Mapping[str, Any]) -> None:
        self.model_states = model_states
        self.buffers: dict[str, torch.Tensor] = {
            name: model_states["module"][name] for name in model_states.get("buffer_names") or ()
        }
        self.shapes: dict[str, Shape] = {}

    @abstractmethod
    def locate(self, name: str, at: int) -> Stretch:
        """Where element `at` of this parameter lies, with as many of the following as lie behind it."""

    @abstractmethod
    def flat(self, place: Stretch, kind: Kind) -> torch.Tensor | None:
        """The flat tensor with these elements; None when the optimizer had no state yet."""

    @abstractmethod
    def updates(self, name: str) -> float:
        """How many updates the optimizer had made of this parameter."""

    def scaler(self) -> Mapping[str, Any]:
        """DeepSpeed's state of the loss scale, empty where there is none."""
        return {}

    def keeps(self, name: str, kind: Kind) -> bool:
        """Whether the optimizer had numbers of this kind for this parameter."""
        with _reading(f"{kind} of {name}"):
            return self.flat(self.locate(name, 0), kind) is not None

    def copy(self, name: str, kind: Kind, start: int, into: torch.Tensor) -> None:
        """Fill the flat tensor `into` with this parameter's elements from `start` on.

        Raises:
            ReadError: the files do not hold what the shapes promise.
        """
        with _reading(f"{kind} of {name}"):
            self._copy(name, kind, start, into)

    def _copy(self, name: str, kind: Kind, start: int, into: torch.Tensor) -> None:
        done = 0
        while done < into.numel():
            found = self.locate(name, start + done)
            count = min(found.count, into.numel() - done)
            source = self.flat(found, kind)
            target = into.narrow(0, done, count)
            if source is None:
                target.zero_()
            elif count <= 0 or found.offset + count > source.numel():
                raise ReadError(
                    f"{name}: element {start + done} should lie at {found.offset} of {kind} {found.slot} of rank "
                    f"{found.rank}, which has {source.numel()} elements"
                )
            else:
                target.copy_(source.reshape(-1).narrow(0, found.offset, count))
            done += count

    def whole(self, name: str, kind: Kind) -> torch.Tensor:
        """A parameter's numbers in its own shape, float32."""
        flat = torch.empty(math.prod(self.shapes[name]), dtype=torch.float32)
        self.copy(name, kind, 0, flat)
        return flat.reshape(self.shapes[name])


class _Plain(Stored):
    """Without ZeRO: rank 0 has written everything, parameter by parameter."""

    def __init__(self, model_states: Mapping[str, Any], order: Sequence[str]) -> None:
        super().__init__(model_states)
        self._weights: Mapping[str, torch.Tensor] = model_states["module"]
        parameters = set(self._weights) - set(self.buffers)
        if set(order) != parameters:
            raise ReadError(f"the optimizer's parameters are not the model's: {set(order) ^ parameters}")
        self._slots = {name: slot for slot, name in enumerate(order)}
        self._names = list(order)
        self._state: Mapping[int, Mapping[str, Any]] = model_states["optimizer"]["state"]
        self.shapes = {name: tuple(self._weights[name].shape) for name in order}

    def locate(self, name: str, at: int) -> Stretch:
        return Stretch(rank=0, slot=self._slots[name], offset=at, count=math.prod(self.shapes[name]) - at)

    def flat(self, place: Stretch, kind: Kind) -> torch.Tensor | None:
        if kind is Kind.WEIGHT:
            return self._weights[self._names[place.slot]].reshape(-1)
        found = self._state.get(place.slot, {}).get(kind)
        return None if found is None else found.reshape(-1)

    def updates(self, name: str) -> float:
        return float(self._state.get(self._slots[name], {}).get("step", 0))


class _Divided(Stored):
    """ZeRO 1 to 3: each rank has a file with the flat tensors that it kept."""

    _masters = "single_partition_of_fp32_groups"
    _optimizer = "base_optimizer_state"

    def __init__(
        self, model_states: Mapping[str, Any], ranks: int, load: Callable[[int], dict[str, Any]]
    ) -> None:
        super().__init__(model_states)
        self._ranks = ranks
        layers = model_states.get("ds_autoep_layers") or [{"ep_size": 1}]
        self._shares = int(layers[0]["ep_size"])  # of the experts, which rank % shares tells apart
        self._load = load
        self._open: dict[int, dict[str, Any]] = {}
        self._groups: list[dict[str, Shape]] = [
            {name: tuple(shape) for name, shape in group.items()} for group in model_states["param_shapes"]
        ]
        self._slots = {name: slot for slot, group in enumerate(self._groups) for name in group}
        self.shapes = {
            name: (shape[0] * self._shares, *shape[1:]) if is_apart(name) else shape
            for group in self._groups
            for name, shape in group.items()
        }
        if model_states.get("frozen_param_shapes"):
            raise ReadError("it holds frozen parameters, which cannot be carried over yet")

    def _share(self, slot: int) -> int:
        """By how many shares the parameters of this group are apart."""
        return self._shares if any(map(is_apart, self._groups[slot])) else 1

    def _within(self, name: str, at: int) -> tuple[int, int, int]:
        """(share, element in the share, how many the share has) of an element of the whole stack."""
        size = math.prod(self._groups[self._slots[name]][name])
        share, inside = divmod(at, size)
        return share, inside, size

    def _file(self, rank: int) -> dict[str, Any]:
        if rank not in self._open:
            found: dict[str, Any] = self._load(rank)["optimizer_state_dict"]
            if len(found[self._masters]) != len(self._groups):
                raise ReadError(
                    f"rank {rank} has {len(found[self._masters])} groups, the model {len(self._groups)}"
                )
            self._check(rank, found)
            self._open[rank] = found
        return self._open[rank]

    @abstractmethod
    def _check(self, rank: int, found: Mapping[str, Any]) -> None:
        """Refuse a file that cannot be this rank's of this checkpoint."""

    def flat(self, place: Stretch, kind: Kind) -> torch.Tensor | None:
        found = self._file(place.rank)
        if kind is Kind.WEIGHT:
            weights: torch.Tensor = found[self._masters][place.slot]
            return weights
        state: torch.Tensor | None = found[self._optimizer]["state"].get(place.slot, {}).get(kind)
        return state

    def updates(self, name: str) -> float:
        return float(self._file(0)[self._optimizer]["state"].get(self._slots[name], {}).get("step", 0))

    def scaler(self) -> Mapping[str, Any]:
        return self._file(0)


class _Consecutive(_Divided):
    """ZeRO 1 and 2: a group's parameters one after the other, cut into equal parts."""

    def __init__(
        self, model_states: Mapping[str, Any], ranks: int, load: Callable[[int], dict[str, Any]]
    ) -> None:
        super().__init__(model_states, ranks, load)
        self._starts: dict[str, int] = {}
        self._ends: list[int] = []
        for group in self._groups:
            at = 0
            for name, shape in group.items():
                self._starts[name] = at
                at += math.prod(shape)
            self._ends.append(at)
        # The padding lies at the end, so rank 0's part has the full length unless it is the only one.
        masters = load(0)["optimizer_state_dict"][self._masters]
        self._parts = [
            master.numel() if ranks > self._share(slot) else end
            for slot, (master, end) in enumerate(zip(masters, self._ends, strict=True))
        ]

    def _check(self, rank: int, found: Mapping[str, Any]) -> None:
        if any(any(padding) for padding in found.get("param_alignment_paddings", ())):
            raise ReadError("it was written with zero_optimization.parameter_alignment, which is not read")
        for slot, told in enumerate(found["param_slice_mappings"]):
            mine = {name: (piece.start, piece.numel) for name, piece in told.items()}
            if mine != self._pieces(rank, slot):
                raise ReadError(
                    f"the optimizer's file of rank {rank} holds other parts of group {slot}: {mine}"
                )

    def _pieces(self, rank: int, slot: int) -> dict[str, tuple[int, int]]:
        """Name → (start, length) of what this rank keeps of each parameter of the group."""
        first, pieces = rank // self._share(slot) * self._parts[slot], {}
        for name, shape in self._groups[slot].items():
            start = max(first, self._starts[name])
            end = min(first + self._parts[slot], self._starts[name] + math.prod(shape))
            if start < end:
                pieces[name] = (start - first, end - start)
        return pieces

    def locate(self, name: str, at: int) -> Stretch:
        slot = self._slots[name]
        share, inside, size = self._within(name, at)
        part, offset = divmod(self._starts[name] + inside, self._parts[slot])
        return Stretch(
            rank=part * self._share(slot) + share,
            slot=slot,
            offset=offset,
            count=min(size - inside, self._parts[slot] - offset),
        )


class _Sliced(_Divided):
    """ZeRO 3: every parameter is cut by itself, and the parts of a group lie one after the other."""

    _masters = "fp32_flat_groups"
    _optimizer = "optimizer_state_dict"

    def __init__(
        self, model_states: Mapping[str, Any], ranks: int, load: Callable[[int], dict[str, Any]]
    ) -> None:
        super().__init__(model_states, ranks, load)
        self._starts: dict[str, int] = {}
        self._lengths: list[int] = []
        for group in self._groups:
            at = 0
            for name in group:
                self._starts[name] = at
                at += self._part(name)
            self._lengths.append(at)

    def _check(self, rank: int, found: Mapping[str, Any]) -> None:
        kept = [flat.numel() for flat in found[self._masters]]
        if kept != self._lengths:
            raise ReadError(
                f"rank {rank} keeps {kept} elements of the groups, its parameters make {self._lengths}"
            )

    def _part(self, name: str) -> int:
        slot = self._slots[name]
        return math.ceil(math.prod(self._groups[slot][name]) / (self._ranks // self._share(slot)))

    def locate(self, name: str, at: int) -> Stretch:
        slot, part = self._slots[name], self._part(name)
        share, inside, size = self._within(name, at)
        number, offset = divmod(inside, part)
        return Stretch(
            rank=number * self._share(slot) + share,
            slot=slot,
            offset=self._starts[name] + offset,
            count=min(size - inside, part - offset),
        )


class _Joined(Stored):
    """A checkpoint whose experts the ranks had apart, as one of the whole model."""

    def __init__(self, inner: Stored) -> None:
        super().__init__(inner.model_states)
        self._inner = inner
        self.buffers = {whole_name(name): buffer for name, buffer in inner.buffers.items()}
        self.shapes = {whole_name(name): whole_shape(name, shape, 1) for name, shape in inner.shapes.items()}

    def locate(self, name: str, at: int) -> Stretch:
        run = to_stack(name, self.shapes[name], at)
        found = self._inner.locate(run.name, run.at)
        return found if run.count < 0 else replace(found, count=min(found.count, run.count))

    def flat(self, place: Stretch, kind: Kind) -> torch.Tensor | None:
        return self._inner.flat(place, kind)

    def updates(self, name: str) -> float:
        return self._inner.updates(to_stack(name, self.shapes[name], 0).name)

    def scaler(self) -> Mapping[str, Any]:
        return self._inner.scaler()


def open_stored(
    directory: Path, *, ranks: int, order: Callable[[Mapping[str, int]], Sequence[str]]
) -> Stored:
    """The checkpoint in this directory, written by so many ranks. Its files must have been verified.

    `order` sorts names of parameters, given with their numbers of dimensions, as an optimizer without ZeRO counts them.

    Raises:
        ReadError: these are not files of DeepSpeed that we know how to read.
    """
    with _reading(directory.name):
        return _open(directory, ranks, order)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever is wrong with a file's content is one kind of error."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError, OSError, EOFError) as error:
        raise ReadError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def _open(directory: Path, ranks: int, order: Callable[[Mapping[str, int]], Sequence[str]]) -> Stored:
    files: dict[int, Path] = {}
    for path in directory.glob("*zero_pp_rank_*_mp_rank_00_optim_states.pt"):
        files[int(path.name.partition("rank_")[2].partition("_")[0])] = path
    if not files:
        states = _mapped(directory / "mp_rank_00_model_states.pt")
        buffers = set(states.get("buffer_names") or ())
        weights = {name: tensor.dim() for name, tensor in states["module"].items() if name not in buffers}
        return _Plain(states, order(weights))
    if set(files) != set(range(ranks)):
        raise ReadError(
            f"{directory.name} has the optimizer's files of ranks {sorted(files)}, not of {ranks}"
        )

    def load(rank: int) -> dict[str, Any]:
        return _mapped(files[rank])

    sliced = directory / "zero_pp_rank_0_mp_rank_00_model_states.pt"
    found: Stored
    if sliced.exists():
        found = _Sliced(_mapped(sliced), ranks, load)
    else:
        found = _Consecutive(_mapped(directory / "mp_rank_00_model_states.pt"), ranks, load)
    return _Joined(found) if found.model_states.get("ds_autoep_layers") else found


def _mapped(path: Path) -> dict[str, Any]:
    """The file's content; tensors are read from the disk when they are looked at."""
    found: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=False)
    return found
