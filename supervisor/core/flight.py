"""Flight recorders of all ranks side by side: which collective is stuck, and who did not come to it. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from contract.evidence import Collective, WorkerEvidence


class Fault(StrEnum):
    """What is wrong with a collective."""

    ABSENT = "absent"  # some ranks did not enter what others wait in
    MISMATCH = "mismatch"  # ranks called different things at the same place of the order
    STUCK = "stuck"  # all entered the same and nobody came out


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`ranks`: those that are to blame or, when nobody is, that are in it. `others`: who waits, with their call."""

    fault: Fault
    group: str
    seq: int
    call: str
    ranks: tuple[int, ...]
    others: tuple[int, ...] = ()
    instead: str = ""  # what the blamed ranks called at that place
    since: float = 0.0  # when the first rank began to wait, by its own clock


def findings(workers: Iterable[WorkerEvidence]) -> tuple[Finding, ...]:
    """One a process group at most, the most telling first: whoever waits elsewhere is a victim itself.

    Ranks that wait for each other in two groups all wait elsewhere. Then the older wait is the cause: whoever did not
    come to it had gone on to the other. Clocks of hosts differ by less than a step takes, or the order says nothing.
    """
    ranks = {worker.rank: worker.collectives for worker in workers if worker.collectives}
    names = dict.fromkeys(entry.group for entries in ranks.values() for entry in entries)
    found = [finding for name in names if (finding := _of_group(name, ranks)) is not None]
    waiting = {rank for rank, entries in ranks.items() if any(not entry.done for entry in entries)}

    def excused(finding: Finding) -> bool:
        return finding.fault is Fault.ABSENT and set(finding.ranks) <= waiting

    order = (Fault.MISMATCH, Fault.ABSENT, Fault.STUCK)
    return tuple(sorted(found, key=lambda item: (excused(item), order.index(item.fault), item.since)))


def _of_group(name: str, ranks: Mapping[int, tuple[Collective, ...]]) -> Finding | None:
    calls: dict[int, dict[int, Collective]] = {}
    for rank, entries in ranks.items():
        mine = {entry.seq: entry for entry in entries if entry.group == name}
        declared = next(iter(mine.values())).ranks if mine else ()
        if mine and (not declared or rank in declared):
            calls[rank] = mine
    if all(entry.done for mine in calls.values() for entry in mine.values()):
        return None  # nobody waits here
    since = min(entry.at for mine in calls.values() for entry in mine.values() if not entry.done)
    found = _fault(name, calls)
    return replace(found, since=since) if found else None


def _fault(name: str, calls: Mapping[int, Mapping[int, Collective]]) -> Finding | None:
    mismatch = _mismatch(name, calls)
    if mismatch is not None:
        return mismatch
    last = {rank: max(mine) for rank, mine in calls.items()}
    least = min(last.values())
    behind = tuple(sorted(rank for rank, seq in last.items() if seq == least))
    ahead = tuple(sorted(set(last) - set(behind)))
    if not ahead:
        seq = least
        if all(mine[seq].done for mine in calls.values()):
            return None
        return Finding(
            fault=Fault.STUCK, group=_shown(name), seq=seq, call=_call(calls[behind[0]][seq]), ranks=behind
        )
    seq = least + 1
    entered = [calls[rank][seq] for rank in ahead if seq in calls[rank]]
    if entered and all(entry.done for entry in entered):
        return None  # a broadcast, say, that the others need not wait for
    call = _call(entered[0]) if entered else "a collective"
    return Finding(fault=Fault.ABSENT, group=_shown(name), seq=seq, call=call, ranks=behind, others=ahead)


def _mismatch(name: str, calls: Mapping[int, Mapping[int, Collective]]) -> Finding | None:
    """The first place in the order where not all ranks called the same. The fewer are to blame; of two, both."""
    if len(calls) < 2:
        return None
    common = set.intersection(*(set(mine) for mine in calls.values()))
    for seq in sorted(common):
        kinds = {rank: _call(mine[seq]) for rank, mine in calls.items()}
        if len(set(kinds.values())) == 1 or all(mine[seq].done for mine in calls.values()):
            continue
        usual, count = Counter(kinds.values()).most_common(1)[0]
        odd = tuple(sorted(rank for rank, kind in kinds.items() if kind != usual))
        even = tuple(sorted(set(kinds) - set(odd)))
        return Finding(
            fault=Fault.MISMATCH,
            group=_shown(name),
            seq=seq,
            call=usual,
            ranks=odd if count > len(odd) else (*odd, *even),
            others=even,
            instead=kinds[odd[0]],
        )
    return None


def _call(entry: Collective) -> str:
    # What a rank scatters, gathers or broadcasts to may differ in size, as may its parts of an all-to-all.
    same = entry.name.startswith(("all_reduce", "allreduce", "reduce", "barrier", "_all_gather", "_reduce"))
    return f"{entry.name} {entry.sizes}".strip() if same else entry.name


def _shown(group: str) -> str:
    """`default_pg` of `0:default_pg`."""
    return group.partition(":")[2] or group
