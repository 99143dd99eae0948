"""Which finding is the cause: the earliest failure, not the loudest. Pure.

Design rule 9: on one clock the first in time; a cause of its own beats one that names somebody else; what training
outlived, what a good end followed and what only follows from the cause are no cause.
"""

from collections.abc import Sequence
from dataclasses import replace

from contract.states import Cause
from supervisor.diagnose.blame import blame_node, suspect_rank, why_named
from supervisor.diagnose.catalogue import Catalogue, Tier
from supervisor.diagnose.findings import Event, FileScan
from supervisor.diagnose.own import attempt_of
from supervisor.diagnose.verdict import Diagnosis, Ignored, Line, Why

_MOST_IGNORED = 6
# A cancelled job's connections break in the same moment: seconds where there are times, lines where there are none.
_MOMENT_S = 60.0
_MOMENT_LINES = 200
# What a machine reports beside the program's errors explains them, also when it comes a little later.
_EXPLAINS = {
    Cause.GPU_HARDWARE: frozenset({Cause.GPU_ERROR, Cause.SIGNAL}),
    Cause.HOST_OOM: frozenset({Cause.DATALOADER}),
}
_TELLING_HINTS = frozenset({Cause.FILESYSTEM, Cause.GPU_HARDWARE, Cause.NETWORK})


def judge(scans: Sequence[FileScan], catalogue: Catalogue) -> Diagnosis:
    """What killed this job, from what was found in its logs."""
    scans = _newest(scans)
    live, over = _living(scans)
    events = in_order(live)
    hard = [event for event in events if not event.soft and event.entry.tier not in {Tier.HINT, Tier.SUCCESS}]
    if not hard:
        reasons = [(event, Why.REMARK) for event in events if event.entry.tier is not Tier.SUCCESS]
        return Diagnosis(entry=catalogue.named("no-failure"), ignored=_told([*over, *reasons], scans))
    chosen = _choose(events, hard)
    suspect = suspect_rank(chosen, events, scans)
    named, own = why_named(suspect, chosen, events)
    told = {event.place for event in (chosen, own) if event}
    others = [(event, _why(event)) for event in events if event.place not in told]
    unexplained = chosen.entry.cause in {Cause.UNEXPLAINED, Cause.SIGNAL}
    return Diagnosis(
        entry=chosen.entry,
        blame_node=blame_node(chosen, events, scans),
        suspect_rank=suspect,
        named=named,
        suspect_line=Line(file=scans[own.file].name, line=own.line, text=own.text) if own else None,
        file=scans[chosen.file].name,
        line=chosen.line,
        text=chosen.text,
        last=scans[chosen.file].last if unexplained else (),
        ignored=_told([*others, *over], scans),
    )


def in_order(events: Sequence[Event]) -> list[Event]:
    """By time where one clock covers every file, else by file and line. A line without a time has its neighbour's."""
    by_place = sorted(events, key=lambda event: event.place)
    clock = sum(1 if event.stamp.utc else -1 for event in by_place if event.stamp) > 0
    times: dict[tuple[int, int], float] = {}
    for file in {event.file for event in by_place}:
        rows = [event for event in by_place if event.file == file]
        last = next((event.stamp.seconds for event in rows if event.stamp and event.stamp.utc == clock), None)
        if last is None:
            return by_place
        for event in rows:
            if event.stamp and event.stamp.utc == clock:
                last = event.stamp.seconds
            times[event.place] = last
    return sorted(by_place, key=lambda event: (times[event.place], event.place))


def _newest(scans: Sequence[FileScan]) -> list[FileScan]:
    """Of a run of ours the newest attempt that has a log: the run went on after what the earlier ones say."""
    attempts = [attempt_of(scan.name) for scan in scans]
    newest: dict[str, int] = {}
    for attempt, scan in zip(attempts, scans, strict=True):
        if attempt is not None and scan.lines:
            newest[attempt[0]] = max(attempt[1], newest.get(attempt[0], 0))
    return [
        replace(scan, events=(), survived=(*scan.survived, *scan.events))
        if attempt is not None and attempt[1] < newest.get(attempt[0], 0)
        else scan
        for attempt, scan in zip(attempts, scans, strict=True)
    ]


def _living(scans: Sequence[FileScan]) -> tuple[list[Event], list[tuple[Event, Why]]]:
    """What may be the cause, and what is over: outlived by training, or followed by a good end."""
    generation = max((scan.generation for scan in scans), default=0)
    over = [(event, Why.OUTLIVED) for scan in scans for event in scan.survived]
    live: list[Event] = []
    ended_well = {
        scan_number: last for scan_number, scan in enumerate(scans) if (last := _good_end(scan)) > 0
    }
    records = [
        event
        for scan in scans
        for event in scan.events
        if event.entry.tier in {Tier.EXIT, Tier.OUTSIDE}
        and not event.soft
        and event.line > ended_well.get(event.file, 0)
    ]
    for event in (event for scan in scans for event in scan.events):
        good = ended_well.get(event.file)
        if 0 < event.generation < generation:
            over.append((event, Why.OUTLIVED))
        elif (good is not None and (event.line < good or _only_leaving(event))) or (
            good is None and ended_well and not records
        ):
            over.append((event, Why.ENDED_WELL))
        else:
            live.append(event)
    return live, [(event, why) for event, why in over if event.entry.tier is not Tier.SUCCESS]


def _only_leaving(event: Event) -> bool:
    """What processes say while they take their communicators down."""
    return event.entry.tier in {Tier.VICTIM, Tier.HINT} or event.entry.name == "exit-aborted"


def _good_end(scan: FileScan) -> int:
    return max(
        (event.line for event in scan.events if event.entry.tier is Tier.SUCCESS and not event.soft),
        default=0,
    )


def _choose(events: Sequence[Event], hard: Sequence[Event]) -> Event:
    """The cause among what is hard, in the order of what each tier is worth."""
    roots = [event for event in hard if event.entry.tier is Tier.ROOT]
    outside = next((event for event in hard if event.entry.tier is Tier.OUTSIDE), None)
    weak = _first_death([event for event in hard if event.entry.tier is Tier.WEAK], hard)
    victim = next((event for event in hard if event.entry.tier is Tier.VICTIM), None)
    record = _first_record(hard)
    root = _first_root(roots)
    if root is not None:
        ends_first = outside is not None and hard.index(outside) < hard.index(root)
        return (
            outside
            if outside is not None and ends_first and root.entry.cause is not Cause.NODE_FAILURE
            else root
        )
    if outside is not None:
        before = [
            event
            for event in (weak, victim, record)
            if event is not None and _came_before(event, outside, hard)
        ]
        return (
            min(before, key=hard.index)
            if before and before != [record]
            else _or_record(outside, record, before)
        )
    if weak is not None:
        return weak
    if victim is not None:
        return _hint_before(events, victim) or victim
    best = record or next(event for event in hard if event.entry.tier is Tier.EXIT)
    return _any_hint(events, best) or best


def _or_record(outside: Event, record: Event | None, before: Sequence[Event]) -> Event:
    """A process that had failed before the job was cancelled is the reason for cancelling it."""
    return record if record is not None and record in before else outside


def _first_root(roots: Sequence[Event]) -> Event | None:
    """The first, unless a later one explains it, or the order is unknown and another one says more."""
    if not roots:
        return None
    first = roots[0]
    if first.fallback and first.stamp is None:
        elsewhere = [event for event in roots if not event.fallback and event.file != first.file]
        first = elsewhere[0] if elsewhere else first
    explaining = (
        event
        for event in roots
        if event.entry.explains(first.entry)
        or first.entry.cause in _EXPLAINS.get(event.entry.cause, frozenset())
    )
    return next(explaining, first)


def _first_death(weak: Sequence[Event], hard: Sequence[Event]) -> Event | None:
    """The first death by a signal that was not sent because another process had failed before."""
    if marked := next((event for event in weak if event.first), None):
        return marked
    others = [event for event in hard if event.entry.tier is Tier.EXIT and (event.code or 0) > 0]
    for event in weak:
        passed_on = event.entry.name == "exit-killed" and any(
            other.file == event.file and (other.first or hard.index(other) < hard.index(event))
            for other in others
        )
        if not passed_on:
            return event
    return None


def _first_record(hard: Sequence[Event]) -> Event | None:
    records = [event for event in hard if event.entry.tier is Tier.EXIT and event.code is not None]
    return next((event for event in records if event.first), records[0] if records else None)


def _came_before(event: Event, outside: Event, hard: Sequence[Event]) -> bool:
    """Whether it was there before somebody ended the job, not in the moment of that."""
    if hard.index(event) > hard.index(outside):
        return False
    if event.entry.cause is not Cause.COMM_PEER:
        return True
    if event.stamp and outside.stamp and event.stamp.utc == outside.stamp.utc:
        return outside.stamp.seconds - event.stamp.seconds > _MOMENT_S
    return event.file == outside.file and outside.line - event.line > _MOMENT_LINES


def _hint_before(events: Sequence[Event], victim: Event) -> Event | None:
    """A machine's own complaint before others missed it."""
    earlier = events[: list(events).index(victim)]
    return next(
        (event for event in earlier if event.entry.tier is Tier.HINT and event.entry.cause in _TELLING_HINTS),
        None,
    )


def _any_hint(events: Sequence[Event], best: Event) -> Event | None:
    """Where only an exit code is known, a remark is better than nothing."""
    if best.entry.cause is not Cause.UNEXPLAINED:
        return None
    remarks = [
        event
        for event in events
        if event.entry.cause is not Cause.UNEXPLAINED and event.entry.tier is not Tier.SUCCESS
    ]
    hints = [event for event in remarks if event.entry.tier is Tier.HINT or event.soft]
    return next((event for event in hints if event.entry.tier is Tier.HINT), hints[-1] if hints else None)


def _why(event: Event) -> Why:
    if event.soft or event.entry.tier is Tier.HINT:
        return Why.REMARK
    if event.entry.tier is Tier.VICTIM:
        return Why.VICTIM
    return Why.FOLLOWS if event.entry.tier is Tier.EXIT else Why.LATER


def _told(reasons: Sequence[tuple[Event, Why]], scans: Sequence[FileScan]) -> tuple[Ignored, ...]:
    """A few, each kind once."""
    told: dict[tuple[str, Why], Ignored] = {}
    for event, why in reasons:
        told.setdefault(
            (event.entry.name, why),
            Ignored(name=event.entry.name, file=scans[event.file].name, line=event.line, why=why),
        )
    return tuple(told.values())[:_MOST_IGNORED]
