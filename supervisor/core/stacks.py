"""Where all ranks stand, in a few groups: the ranks of a group stand at the same place. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contract.evidence import Frame, WorkerEvidence

# Frames of the interpreter's own library and of installed packages: the place that a person looks for is outside.
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages)/|/lib/python3[^/]*/|^<frozen ")
# What a rank does that waits for others, as torch and DeepSpeed name it, without the ways of spelling it.
_COLLECTIVE = re.compile(
    r"^_?(all_?reduce|all_?gather|reduce_scatter|broadcast|barrier|all_to_all|gather|scatter|reduce)"
    r"(?:_(?:object|object_list|into_tensor|tensor|single|base|coalesced|fn|list))*$"
)
_STOPPED = frozenset({"T", "t"})


@dataclass(frozen=True, kw_only=True)
class Group:
    """`doing`: the function; `where`: `file.py:line` of the program's own code, "" when nothing of it is seen."""

    ranks: tuple[int, ...]
    doing: str
    where: str = ""
    phase: str = ""
    stopped: bool = False

    @property
    def waits(self) -> bool:
        """Whether these ranks are in a collective: they wait for somebody."""
        return _COLLECTIVE.match(self.doing) is not None

    @property
    def known(self) -> bool:
        return bool(self.doing)


def groups(workers: Iterable[WorkerEvidence]) -> tuple[Group, ...]:
    """The groups, the largest first; of equals, those that wait first, so that the odd ones stand last."""
    found: dict[tuple[str, str, str, bool], list[int]] = {}
    for worker in workers:
        doing, where = place(worker.threads[0].frames) if worker.threads else ("", "")
        phase = worker.phase if not doing else ""
        found.setdefault((doing, where, phase, worker.os_state in _STOPPED), []).append(worker.rank)
    made = [
        Group(ranks=tuple(sorted(ranks)), doing=doing, where=where, phase=phase, stopped=stopped)
        for (doing, where, phase, stopped), ranks in found.items()
    ]
    return tuple(sorted(made, key=lambda group: (-len(group.ranks), not group.waits, group.ranks)))


def place(frames: Sequence[Frame]) -> tuple[str, str]:
    """What the thread does and where in the program's own code, from frames with the innermost first."""
    python = [frame for frame in frames if frame.file and not frame.file.endswith((".so", ".c", ".cpp"))]
    own = next((frame for frame in python if not _LIBRARY.search(frame.file)), None)
    inner = python[: python.index(own)] if own else python
    collective = next((frame for frame in inner if _COLLECTIVE.match(frame.name)), None)
    if collective:
        return collective.name, (own or collective).where
    if own:
        return own.name, own.where
    return (python[0].name, python[0].where) if python else ("", "")


def some_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    words = [str(start) if start == end else f"{start}-{end}" for start, end in runs]
    more = f", … ({len(ranks)} in all)" if len(words) > 6 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(words[:6])}{more}"
