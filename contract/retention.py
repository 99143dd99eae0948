"""Which checkpoints are given up. Pure: the same for local checkpoints and for copies elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from contract.config.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One checkpoint directory. `counts`: valid and of the lineage; `writer` is (attempt, generation)."""

    name: str
    step: int
    writer: tuple[int, int]
    counts: bool
    val_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class Keep:
    """The rule; see [checkpoint]."""

    last: int
    every_steps: int = 0
    best: int = 0


def rule_of(config: Checkpoint) -> Keep:
    """The rule in [checkpoint]."""
    return Keep(last=config.keep_last, every_steps=config.keep_every_steps, best=config.keep_best)


def doomed(found: Sequence[Kept], keep: Keep, *, newest_writer: tuple[int, int]) -> tuple[str, ...]:
    """Names to remove, in the order in which to do it: what counts least first, older before newer.

    Nothing goes until `keep.last` checkpoints count, so the last valid one never does. What does not count
    (half-written, damaged, rolled back) goes once it is older than all of these, so that people can still look at it;
    what a generation later than `newest_writer` wrote is never touched.
    """
    counting = sorted((item for item in found if item.counts), key=_age, reverse=True)
    if len(counting) < keep.last:
        return ()
    kept = {item.name for item in counting[: keep.last]} | _for_ever(counting, keep) | _best(counting, keep)
    oldest = _age(counting[keep.last - 1])
    gone = [
        item
        for item in found
        if item.name not in kept and item.writer <= newest_writer and _age(item) < oldest
    ]
    return tuple(item.name for item in sorted(gone, key=lambda item: (item.counts, _age(item))))


def _age(item: Kept) -> tuple[int, tuple[int, int]]:
    return (item.step, item.writer)


def _for_ever(counting: Sequence[Kept], keep: Keep) -> set[str]:
    """Of every `every_steps` steps the first, from the first such number on."""
    if not keep.every_steps:
        return set()
    first = {item.step // keep.every_steps: item.name for item in sorted(counting, key=_age, reverse=True)}
    return {name for number, name in first.items() if number}


def _best(counting: Sequence[Kept], keep: Keep) -> set[str]:
    """Those with the lowest validation loss; of equals the newer."""
    rated = [(item.val_loss, item) for item in counting if item.val_loss is not None]
    ordered = sorted(rated, key=lambda pair: _age(pair[1]), reverse=True)
    return {item.name for _, item in sorted(ordered, key=lambda pair: pair[0])[: keep.best]}
