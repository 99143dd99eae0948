"""Muon: the update of a hidden matrix made orthogonal (Keller Jordan), beside AdamW for all other parameters.

The formula is that of `torch.optim.Muon` with `match_rms_adamw` (arXiv:2502.16982), so that rates and decay tuned for
AdamW count. ZeRO cuts matrices at any element, and DeepSpeed's own Muon makes them orthogonal before it clips: the
norm of a gradient could neither be told nor limited. Here the update begins where AdamW's does, with a gradient
that is reduced, clipped and found finite; what is cut is put together on one rank, and given back.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

_A, _B, _C = 3.4445, -4.7750, 2.0315  # of the quintic, and its number of steps: github.com/KellerJordan/Muon
_STEPS = 5
_EPS = 1e-7
_RMS = 0.2  # an entry's usual size in an update of AdamW, arXiv:2502.16982, 2.2
_AT_ONCE = 1 << 27  # elements of cut matrices that travel together

_HIDDEN = re.compile(r"(?:^|\.)layers\.\d+\.")
_ROUTER = re.compile(r"\.gate\.weight\Z")  # whose rows are experts: a choice, no map between spaces
_JOINED = re.compile(r"\.gate_up_proj\Z")  # two matrices in one parameter


def takes_muon(name: str, dimensions: int) -> bool:
    """Whether this parameter is a hidden matrix, or a stack of them: no embedding, head, norm, bias or router."""
    return dimensions >= 2 and bool(_HIDDEN.search(name)) and not _ROUTER.search(name)


def matrices(name: str, shape: Sequence[int]) -> tuple[int, int, int]:
    """(how many matrices lie one after the other in this parameter, rows, columns)."""
    *stack, rows, columns = shape
    count = 1
    for size in stack:
        count *= size
    return (2 * count, rows // 2, columns) if _JOINED.search(name) else (count, rows, columns)


def orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """For each matrix of (count, rows, columns) nearly the orthogonal one next to it, in bfloat16."""
    tall = stack.shape[1] > stack.shape[2]
    found = stack.mT.bfloat16() if tall else stack.bfloat16()
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=_EPS)
    for _ in range(_STEPS):
        square = found @ found.mT
        factor = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
        found = torch.baddbmm(found, factor, found, beta=_A)
    return found.mT if tall else found


@dataclass(frozen=True, kw_only=True)
class Part:
    """What this rank keeps of a parameter: `count` elements from `start` on, at `offset` in what the optimizer steps."""

    start: int
    count: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Whole matrices of one parameter, at its elements from `start` to `end`.

    `mine` says where this rank has them: (from the unit's first element, in the flat tensor, count). `cut`: no rank has
    all of them, and `owner` puts them together.
    """

    start: int
    end: int
    rows: int
    columns: int
    cut: bool
    owner: int = 0
    mine: tuple[int, int, int] | None

    def solved(self, flat: torch.Tensor) -> torch.Tensor:
        """The update for these elements, flat, as large as AdamW's would be."""
        found = orthogonal(flat.view(-1, self.rows, self.columns))
        return found.float().mul_(_RMS * max(self.rows, self.columns) ** 0.5).reshape(-1)


def units_of(name: str, shape: Sequence[int], parts: Sequence[Part | None], rank: int) -> Iterator[Unit]:
    """The parameter cut between matrices. `parts`: what each rank keeps of it."""
    count, rows, columns = matrices(name, shape)
    portion = max(1, _AT_ONCE // len(parts) // (rows * columns))
    for first in range(0, count, portion):
        start, end = first * rows * columns, min(first + portion, count) * rows * columns
        found = [None if part is None else _common(part, start, end) for part in parts]
        yield Unit(
            start=start,
            end=end,
            rows=rows,
            columns=columns,
            cut=all(common is None or common[2] < end - start for common in found),
            mine=found[rank],
        )


def _common(part: Part, start: int, end: int) -> tuple[int, int, int] | None:
    first, last = max(part.start, start), min(part.start + part.count, end)
    return (first - start, part.offset + first - part.start, last - first) if first < last else None


class Muon(torch.optim.AdamW):  # type: ignore[misc]
    """AdamW, and Muon for the groups that say `muon`. Until `meet` has told it what ZeRO made of them, it cannot step."""

    param_groups: list[dict[str, Any]]

    def __init__(self, groups: list[dict[str, Any]], *, momentum: float, **adamw: Any) -> None:
        """`groups` as AdamW takes them."""
        super().__init__([{"muon": False, "momentum": momentum, **group} for group in groups], **adamw)
        self._units: Mapping[int, Sequence[Unit]] = {}
        self._device = torch.device("cpu")

    def meet(
        self,
        keepers: Mapping[str, torch.Tensor],
        shapes: Mapping[str, Sequence[int]],
        parts: Mapping[str, Part],
        device: torch.device,
    ) -> None:
        """Learn where the matrices are. All ranks must call it.

        `keepers` has the tensor in which each parameter is stepped here, `parts` what this rank keeps of it.
        `device` computes, whatever the host keeps.
        """
        rank, ranks = dist.get_rank(), dist.get_world_size()
        everybody: list[Mapping[str, Part]] = [{}] * ranks
        dist.all_gather_object(everybody, dict(parts))
        found: dict[int, list[Unit]] = {}
        turns = itertools.count()
        for name in (name for name in keepers if takes_muon(name, len(shapes[name]))):
            for unit in units_of(name, shapes[name], [theirs.get(name) for theirs in everybody], rank):
                owner = next(turns) % ranks if unit.cut else 0
                found.setdefault(id(keepers[name]), []).append(replace(unit, owner=owner))
        self._units, self._device = found, device

    def step(self, closure: Any = None) -> None:
        """One update by the gradients as they are. All ranks step the same groups in the same order."""
        assert closure is None
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group["muon"]]
        try:
            super().step()
        finally:
            self.param_groups = groups
        with torch.no_grad():
            for group in groups:
                for flat in group["params"] if group["muon"] else ():
                    if flat.grad is not None:
                        self._update(flat, group)

    def _update(self, flat: torch.Tensor, group: Mapping[str, Any]) -> None:
        assert flat.grad is not None
        state, gradient = self.state[flat], flat.grad.view(-1)
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["momentum_buffer"] = torch.zeros_like(flat)
        state["step"] += 1
        momentum = state["momentum_buffer"].view(-1)
        momentum.lerp_(gradient, 1 - group["momentum"])
        wanted = gradient.lerp(momentum, group["momentum"])
        flat.mul_(1 - group["lr"] * group["weight_decay"])
        for unit, solution in self._solutions(self._units[id(flat)], wanted):
            if unit.mine is not None:
                inside, at, count = unit.mine
                flat.view(-1)[at : at + count].add_(
                    solution[inside : inside + count].to(flat.device), alpha=-group["lr"]
                )

    def _solutions(self, units: Sequence[Unit], wanted: torch.Tensor) -> Iterator[tuple[Unit, torch.Tensor]]:
        """The update of each unit of which this rank has something."""
        for unit in units:
            if unit.mine is not None and not unit.cut:
                _, at, count = unit.mine
                yield unit, unit.solved(wanted[at : at + count].to(self._device))
        for some in _portions([unit for unit in units if unit.cut]):
            yield from self._together(some, wanted)

    def _together(self, units: Sequence[Unit], wanted: torch.Tensor) -> Iterator[tuple[Unit, torch.Tensor]]:
        """Each unit put together, solved and given back by its owner, all at the same time."""
        whole = [torch.zeros(unit.end - unit.start, device=self._device) for unit in units]
        for unit, buffer in zip(units, whole, strict=True):
            if unit.mine is not None:
                inside, at, count = unit.mine
                buffer[inside : inside + count] = wanted[at : at + count]
        pairs = list(zip(units, whole, strict=True))
        _all([dist.reduce(buffer, dst=unit.owner, async_op=True) for unit, buffer in pairs])
        for unit, buffer in pairs:
            if unit.owner == dist.get_rank():
                buffer.copy_(unit.solved(buffer))
        _all([dist.broadcast(buffer, src=unit.owner, async_op=True) for unit, buffer in pairs])
        yield from pairs


def _portions(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """The units, in order, as many at a time as memory may hold."""
    some: list[Unit] = []
    for unit in units:
        if some and sum(other.end - other.start for other in [*some, unit]) > _AT_ONCE:
            yield some
            some = []
        some.append(unit)
    if some:
        yield some


def _all(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()
