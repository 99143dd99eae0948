"""Whom the cause points at: the rank that failed first, and the node if the machine is to blame. Pure."""

from collections import Counter
from collections.abc import Sequence

from contract.states import Cause
from supervisor.diagnose.catalogue import Tier
from supervisor.diagnose.findings import Event, FileScan
from supervisor.diagnose.verdict import Named

_OF_NOBODY = frozenset(
    {
        Cause.TIME_LIMIT,
        Cause.PREEMPTED,
        Cause.CANCELLED,
        Cause.NODE_FAILURE,
        Cause.RENDEZVOUS,
        Cause.COMM_PEER,
        Cause.LAUNCH,
    }
)
_OF_ALL = frozenset({Cause.CONFIG, Cause.IMPORT})


def suspect_rank(chosen: Event, events: Sequence[Event], scans: Sequence[FileScan]) -> int | None:
    """The rank that failed first, None where it cannot be told or nobody did."""
    if chosen.entry.name == "nccl-barrier-timeout":
        return chosen.rank
    if chosen.entry.cause in {Cause.COMM_TIMEOUT, Cause.HANG}:
        return _missing_rank(events, scans)
    of_a_link = chosen.entry.cause is Cause.NETWORK and chosen.entry.tier is Tier.WEAK
    if chosen.entry.cause in _OF_NOBODY or of_a_link or _everybody(chosen, events):
        return None
    launcher = any(scan.launcher for scan in scans)
    own = _rank_of(chosen, events, launcher)
    if own is not None:
        return own
    alike = (
        event for event in events if event.entry.cause is chosen.entry.cause and event.file == chosen.file
    )
    deaths = sorted(
        (event for event in events if event.code is not None and event.entry.tier in {Tier.WEAK, Tier.EXIT}),
        key=lambda event: not event.first,
    )
    ranks = (_rank_of(event, events, launcher) for event in (*alike, *deaths[:1]))
    return next((rank for rank in ranks if rank is not None), None)


def why_named(suspect: int | None, chosen: Event, events: Sequence[Event]) -> tuple[Named, Event | None]:
    """Why this rank is the suspect, and its own line where the decisive one is another rank's."""
    own = [event for event in events if event.rank == suspect and suspect is not None]
    waited = (
        chosen.entry.cause in {Cause.COMM_TIMEOUT, Cause.HANG} and chosen.entry.name != "nccl-barrier-timeout"
    )
    if not waited:
        return Named.FIRST, own[0] if own and chosen.rank not in {None, suspect} else None
    works = [event for event in own if event.work is not None and event.entry.cause is chosen.entry.cause]
    behind = min(works, key=lambda event: event.work or 0, default=None)
    if behind is None:
        return Named.SILENT, None
    return Named.BEHIND, None if behind.place == chosen.place else behind


def blame_node(chosen: Event, events: Sequence[Event], scans: Sequence[FileScan]) -> str | None:
    """The node's name where the machine is at fault; None where it is not, or nothing names it."""
    same = [event for event in events if event.entry.cause is chosen.entry.cause]
    known = frozenset().union(*(scan.nodes for scan in scans), {event.node for event in events if event.node})
    if not chosen.entry.blame:
        return _only_here(same, known) if chosen.entry.cause is Cause.FILESYSTEM else None
    node_of = {rank: node for scan in scans for rank, node in scan.node_of.items()}
    for event in (chosen, *same):
        named = event.node or node_of.get(event.rank if event.rank is not None else -1, "")
        if named:
            return named
    if chosen.entry.cause is Cause.NODE_FAILURE:
        return None
    rank = suspect_rank(chosen, events, scans)
    if rank is not None and (rank in node_of or any(event.rank == rank and event.node for event in events)):
        return node_of.get(rank) or next(event.node for event in events if event.rank == rank and event.node)
    return next(iter(known)) if len(known) == 1 else None


def _only_here(same: Sequence[Event], known: frozenset[str]) -> str | None:
    """A file system that fails on one node of several."""
    nodes = {event.node for event in same if event.node}
    return nodes.pop() if len(nodes) == 1 and len(known) > 1 else None


def _rank_of(event: Event, events: Sequence[Event], launcher: bool) -> int | None:
    if event.rank is not None:
        return event.rank
    if event.task is not None and not launcher:
        return event.task
    if event.local is None:
        return None
    rows = {other.rank for other in events if other.local == event.local and other.rank is not None}
    if rows:
        return rows.pop() if len(rows) == 1 else None
    nodes = {other.node for other in events if other.node}
    return event.local if len(nodes) <= 1 else None  # on one node the local rank is the rank


def _everybody(chosen: Event, events: Sequence[Event]) -> bool:
    """A mistake that every rank makes points at none of them."""
    if chosen.entry.cause not in _OF_ALL:
        return False
    return len({event.rank for event in events if event.entry.name == chosen.entry.name}) >= 3


def _missing_rank(events: Sequence[Event], scans: Sequence[FileScan]) -> int | None:
    """Of a collective that timed out: who is behind, else who of all did not even complain."""
    timeouts = [
        event
        for event in events
        if event.entry.cause in {Cause.COMM_TIMEOUT, Cause.HANG} and event.rank is not None
    ]
    for name in ("nccl-watchdog-work", "nccl-watchdog-timeout"):
        works: dict[int, int] = {}
        for event in timeouts:
            if event.entry.name == name and event.work is not None and event.rank is not None:
                works[event.rank] = min(event.work, works.get(event.rank, event.work))
        if len(works) > 1:
            least = min(works.values())
            behind = [rank for rank, work in works.items() if work == least]
            if len(behind) == 1 and Counter(works.values())[least] == 1 and len(set(works.values())) == 2:
                return behind[0]
    seen = {event.rank for event in timeouts}
    world = max((scan.world for scan in scans), default=0)
    world = max(world, max((rank for rank in seen if rank is not None), default=-1) + 1)
    missing = set(range(world)) - seen if world <= 65536 else set()
    return next(iter(missing)) if len(missing) == 1 and len(seen) > 1 else None
