"""The next plan from what the last step measured. Pure: state and figures in, state and the reason out.

Every rank computes it from the same figures, so that no rank has to be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from statistics import fmean, median
from typing import assert_never

from contract.config.batch import Batch
from trainer.batch.plan import Plan

# A change must promise a step this much shorter, else noise would shift samples to and fro.
_WORTH = 0.05
# Nothing grows or shrinks by more at once: what is measured afterwards corrects what was guessed.
_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one rank measured in one step. None: not measured, and then it changes nothing.

    `busy` is the share of the time in which the device worked and `memory` the share of its memory at the peak, both
    0 to 1; `sample_s` the seconds that one sample takes in the forward pass.
    """

    busy: float | None = None
    memory: float | None = None
    sample_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    """What the controller remembers. `ceiling`: the largest micro-batch that may be tried, 0 for any.

    `idle` counts steps of too little utilisation in a row, `rest` the steps until another change is allowed, `speeds`
    holds the newest seconds per sample of all ranks, and `seen` the memory share by micro-batch.
    """

    plan: Plan
    ceiling: int = 0
    idle: int = 0
    rest: int = 0
    speeds: tuple[tuple[float, ...], ...] = ()
    seen: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The state after a step; `reason` says why the plan changed and is "" when it did not."""

    state: State
    reason: str = ""


def after_step(state: State, figures: Sequence[Figures], wanted: Batch) -> Decision:
    """What follows from one finished step; `figures` in the order of ranks."""
    state = _remembered(state, figures, wanted)
    if state.rest:
        return Decision(state=state)
    pressure = _pressure(figures, wanted)
    match wanted.adaptive:
        case "off":
            return Decision(state=state)
        case "grow":
            return _fewer(state, pressure, wanted) if pressure else _grown(state, wanted)
        case "fixed-global-batch":
            return _halved(state, pressure, wanted) if pressure else _widened(state, wanted)
        case "balance":
            return _halved(state, pressure, wanted) if pressure else _balanced(state, wanted)
        case never:
            assert_never(never)


def after_oom(state: State, ranks: Sequence[int], wanted: Batch) -> Decision | None:
    """The same samples in smaller portions, and never again as large ones; None when they are as small as they get."""
    if state.plan.micro_batch == 1:
        return None
    who = ", ".join(map(str, ranks))
    return _halved(state, f"out of memory on rank {who} with micro-batch {state.plan.micro_batch}", wanted)


def _remembered(state: State, figures: Sequence[Figures], wanted: Batch) -> State:
    """The state with this step's figures taken in."""
    busy = [its.busy for its in figures if its.busy is not None]
    memory = [its.memory for its in figures if its.memory is not None]
    speeds = tuple(its.sample_s for its in figures if its.sample_s)
    idle = state.idle
    if len(busy) == len(figures):
        idle = idle + 1 if fmean(busy) < wanted.utilization_low else 0
    seen = dict(state.seen)
    if memory:
        micro = state.plan.micro_batch
        seen[micro] = max(seen.get(micro, 0.0), *memory)
    return replace(
        state,
        idle=idle,
        rest=max(0, state.rest - 1),
        speeds=(*state.speeds, speeds)[-2 * wanted.patience :]
        if len(speeds) == len(figures)
        else state.speeds,
        seen=tuple(sorted(seen.items())[-8:]),
    )


def _pressure(figures: Sequence[Figures], wanted: Batch) -> str:
    """A sentence when a device is too full, else ""."""
    for rank, its in enumerate(figures):
        if its.memory is not None and its.memory >= wanted.memory_high:
            return f"memory of rank {rank} is {its.memory:.0%} full, the limit is {wanted.memory_high:.0%}"
    return ""


def _changed(state: State, plan: Plan, reason: str, wanted: Batch, *, ceiling: int | None = None) -> Decision:
    ceiling = state.ceiling if ceiling is None else ceiling
    if plan == state.plan:
        return Decision(state=replace(state, ceiling=ceiling))
    fresh = State(plan=plan, ceiling=ceiling, rest=wanted.cooldown_steps, seen=state.seen)
    return Decision(state=fresh, reason=f"{reason}: {state.plan} becomes {plan}")


def _usual_memory(state: State) -> float | None:
    return dict(state.seen).get(state.plan.micro_batch)


def _idle_with_room(state: State, wanted: Batch) -> str:
    """Why the step may become larger, or ""."""
    memory = _usual_memory(state)
    if state.idle < wanted.patience or memory is None or memory > wanted.memory_high - wanted.memory_headroom:
        return ""
    return f"utilisation under {wanted.utilization_low:.0%} for {state.idle} steps, memory {memory:.0%} full"


def _grown(state: State, wanted: Batch) -> Decision:
    """The source's rule: one more accumulation step, and with it a larger global batch."""
    reason, plan = _idle_with_room(state, wanted), state.plan
    if not reason or plan.micro_steps >= wanted.max_accumulation_steps:
        return Decision(state=state)
    return _changed(state, _with_micro_steps(plan, plan.micro_steps + 1), reason, wanted)


def _fewer(state: State, pressure: str, wanted: Batch) -> Decision:
    if state.plan.micro_steps == 1:
        return Decision(state=state)
    return _changed(state, _with_micro_steps(state.plan, state.plan.micro_steps - 1), pressure, wanted)


def _with_micro_steps(plan: Plan, micro_steps: int) -> Plan:
    """As many micro-steps of the same micro-batch."""
    samples = tuple(count * micro_steps // plan.micro_steps for count in plan.samples)
    return Plan(samples=samples, micro_steps=micro_steps)


def _halved(state: State, reason: str, wanted: Batch) -> Decision:
    """The same samples in twice as many portions. The size that was too much is not tried again."""
    plan = state.plan
    ceiling = plan.micro_batch - 1
    if not ceiling:
        return Decision(state=state)
    smaller = replace(plan, micro_steps=min(_AT_ONCE * plan.micro_steps, *plan.samples))
    if (
        smaller.micro_batch > ceiling
    ):  # a rank with few samples keeps the others from smaller portions: even out
        smaller = Plan(samples=_shares([1.0] * len(plan.samples), plan.global_batch, 1, 0), micro_steps=1)
        smaller = replace(
            smaller, micro_steps=min(-(-max(smaller.samples) // max(1, ceiling)), *smaller.samples)
        )
    return _changed(state, smaller, reason, wanted, ceiling=ceiling)


def _widened(state: State, wanted: Batch) -> Decision:
    """The same samples in fewer, larger portions: the optimizer sees no difference."""
    reason, plan = _idle_with_room(state, wanted), state.plan
    if not reason or plan.micro_steps == 1:
        return Decision(state=state)
    for micro_steps in range(-(-plan.micro_steps // _AT_ONCE), plan.micro_steps):
        wider = replace(plan, micro_steps=micro_steps)
        if _allowed(state, wider.micro_batch, wanted) and _fits(state, wider.micro_batch, wanted):
            return _changed(state, wider, reason, wanted)
    return Decision(state=state)


def _allowed(state: State, micro_batch: int, wanted: Batch) -> bool:
    limits = [limit for limit in (state.ceiling, wanted.max_micro_batch_size) if limit]
    return micro_batch <= min(limits, default=micro_batch)


def _fits(state: State, micro_batch: int, wanted: Batch) -> bool:
    """Whether the memory at this micro-batch, as the sizes seen so far foretell it, stays below the limit.

    Two sizes give a line. One gives only the worst case: everything grows with the micro-batch.
    """
    points = [*state.seen]
    if not points:
        return False
    (small, low), (large, high) = points[0], points[-1]
    slope = (high - low) / (large - small) if large > small and high > low else high / large
    return high + slope * (micro_batch - large) < wanted.memory_high


def _balanced(state: State, wanted: Batch) -> Decision:
    """Samples in proportion to speed; the sum and the number of micro-steps stay."""
    plan = state.plan
    if len(state.speeds) < wanted.patience:
        return Decision(state=state)
    seconds = [median(step[rank] for step in state.speeds) for rank in range(len(plan.samples))]
    limits = [limit for limit in (state.ceiling, wanted.max_micro_batch_size) if limit]
    most = min(limits, default=0) * plan.micro_steps
    shares = _shares([1 / its for its in seconds], plan.global_batch, plan.micro_steps, most)
    bounds = [(max(plan.micro_steps, -(-now // _AT_ONCE)), now * _AT_ONCE) for now in plan.samples]
    cut = [min(max(share, low), high) for share, (low, high) in zip(shares, bounds, strict=True)]
    near = _filled(cut, shares, bounds, plan.global_batch)
    before = max(count * its for count, its in zip(plan.samples, seconds, strict=True))
    after = max(count * its for count, its in zip(near, seconds, strict=True))
    if after > before * (1 - _WORTH):
        return Decision(state=state)
    return _changed(state, replace(plan, samples=near), _uneven(plan, seconds), wanted)


def _uneven(plan: Plan, seconds: Sequence[float]) -> str:
    """Who is slow; where nobody is, who has too much to do."""
    slowest = max(range(len(seconds)), key=seconds.__getitem__)
    times = f"{seconds[slowest] / min(seconds):.1f}"
    if times != "1.0":
        return f"rank {slowest} needs {times} times as long for a sample as the fastest"
    most = max(range(len(seconds)), key=plan.samples.__getitem__)
    return (
        f"all ranks are equally fast, and rank {most} has {plan.samples[most]} samples of {plan.global_batch}"
    )


def _shares(weights: Sequence[float], total: int, least: int, most: int) -> tuple[int, ...]:
    """`total` in proportion to the weights, each at least `least` and, unless 0, at most `most`; largest remainders."""
    whole = sum(weights)
    ideal = [total * weight / whole for weight in weights]
    most = max(most, -(-total // len(weights))) if most else total
    bounds = [(least, most)] * len(weights)
    return _filled([min(max(int(its), least), most) for its in ideal], ideal, bounds, total)


def _filled(
    counts: Sequence[int], ideal: Sequence[float], bounds: Sequence[tuple[int, int]], total: int
) -> tuple[int, ...]:
    """`counts` brought to the sum `total` within the bounds, sample by sample where the ideal is farthest away."""
    found = list(counts)
    sign = 1 if sum(found) < total else -1
    queue = [(sign * (its - goal), rank) for rank, (its, goal) in enumerate(zip(found, ideal, strict=True))]
    heapify(queue)
    for _ in range(abs(total - sum(found))):
        while True:
            distance, rank = heappop(queue)
            if bounds[rank][0] <= found[rank] + sign <= bounds[rank][1]:
                break
        found[rank] += sign
        heappush(queue, (distance + 1, rank))
    return tuple(found)
