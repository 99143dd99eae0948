"""From a trace (chrome's format, as torch writes it) to where the step's time went. Pure, and without torch."""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contract.profile import REST, Operator, Region, Timing

PREFIX = "ciuic."  # of the regions' names in the trace
_STEP = "ProfilerStep#"
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
# What waits, and frames around what computes: a hook in them may wait for others.
_NOT_COMPUTING = frozenset({"c10d", "autograd", "torch", "gloo", "nccl", "profiler"})
_TOP = 12

Event = Mapping[str, Any]
Span = tuple[float, float]


def summarise(trace: Mapping[str, Any]) -> Timing:
    """Where the time of the trace's steps went.

    On a device, computing is any work on it that is not NCCL's. On a CPU it is any operator outside c10d and autograd's
    own frames, and communication is what Gloo's threads have in hand.

    Raises:
        ValueError: there is no step in it.
    """
    spans = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event.get("dur", 0) > 0]
    by: dict[str, list[Event]] = defaultdict(list)
    for event in spans:
        by[str(event.get("cat", ""))].append(event)
    notes = by["user_annotation"]
    steps = sorted(_span(event) for event in notes if event["name"].startswith(_STEP))
    if not steps:
        raise ValueError("the trace has no step")
    device = [event for kind in _ON_DEVICE for event in by[kind]]
    if device:
        talk = [event for event in device if "nccl" in event["name"].lower()]
        work = [event for event in device if "nccl" not in event["name"].lower()]
    else:
        talk = [event for event in notes if event["name"].startswith("gloo:")]
        work = [event for event in by["cpu_op"] if _computes(event["name"])]
    window = steps[0][0], max(end for _, end in steps)
    talking = _within(_union(_span(event) for event in talk), window)
    working = _union(_span(event) for event in work)
    each = 1e-6 / len(steps)
    regions = [
        (max(start, window[0]), min(end, window[1]), event["name"].removeprefix(PREFIX))
        for event in notes
        if event["name"].startswith(PREFIX)
        for start, end in (_span(event),)
        if end > window[0] and start < window[1]
    ]
    whole = sum(end - start for start, end in steps)
    launches = {
        event["args"]["correlation"]: event["ts"]
        for kind in _LAUNCHES
        for event in by[kind]
        if "correlation" in event.get("args", {})
    }
    found = _regions(sorted(regions), device, launches, trace["traceEvents"], each)
    named = sum(region.seconds for region in found)
    total = whole * each
    rest = Region(name=REST, seconds=max(0.0, total - named))
    return Timing(
        step_s=total,
        device="cuda" if device else "cpu",
        regions=(*found, rest),
        covered=named / total if total else 0.0,
        comm_s=_length(talking) * each,
        exposed_s=(_length(talking) - _overlap(talking, working)) * each,
        operators=_operators(by["cpu_op"], device, window, each),
    )


def _span(event: Event) -> Span:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def _computes(name: str) -> bool:
    space, separator, _ = name.partition("::")
    return bool(separator) and space not in _NOT_COMPUTING


def _regions(
    regions: Sequence[tuple[float, float, str]],
    device: Iterable[Event],
    launches: Mapping[Any, float],
    events: Iterable[Event],
    each: float,
) -> list[Region]:
    """The regions in the order in which they first came. They follow each other and never overlap."""
    starts = [start for start, _, _ in regions]

    def at(time: float) -> str:
        place = bisect.bisect_right(starts, time) - 1
        return regions[place][2] if place >= 0 and time <= regions[place][1] else ""

    host: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = defaultdict(float)
    peaks: dict[str, int] = {}
    for start, end, name in regions:
        host[name] += end - start
    for event in device:
        launched = launches.get(event.get("args", {}).get("correlation"))
        if launched is not None:
            busy[at(launched)] += event["dur"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    places = {event["args"].get("Device Type", 0) for event in memory}
    for event in memory:
        if event["args"].get("Device Type", 0) == max(places):
            name = at(event["ts"])
            peaks[name] = max(peaks.get(name, 0), int(event["args"]["Total Allocated"]))
    return [
        Region(name=name, seconds=spent * each, device_s=busy[name] * each, peak_bytes=peaks.get(name))
        for name, spent in host.items()
    ]


def _operators(
    operators: Sequence[Event], device: Sequence[Event], window: Span, each: float
) -> tuple[Operator, ...]:
    """Those with the most time of their own: on the device by the operator that started it, else on the CPU."""
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    if device:
        names = {
            event["args"]["External id"]: event["name"]
            for event in operators
            if "External id" in event.get("args", {})
        }
        for event in device:
            name = str(names.get(event.get("args", {}).get("External id"), event["name"]))
            spent[name] += event["dur"]
            calls[name] += 1
    else:
        threads: dict[Any, list[Event]] = defaultdict(list)
        for event in operators:
            if window[0] <= event["ts"] < window[1]:
                threads[event.get("tid")].append(event)
        for thread in threads.values():
            _own_time(thread, spent)
        for event in operators:
            calls[event["name"]] += 1
    top = sorted(spent, key=lambda name: -spent[name])[:_TOP]
    factor = each * 1e6
    return tuple(Operator(name=name, seconds=spent[name] * each, calls=calls[name] * factor) for name in top)


def _own_time(thread: Sequence[Event], spent: dict[str, float]) -> None:
    """Add up each operator's time without that of the operators inside it. Those of a thread are nested."""
    open_: list[tuple[float, str]] = []
    for event in sorted(thread, key=lambda item: (item["ts"], -item["dur"])):
        start, end = _span(event)
        while open_ and open_[-1][0] <= start:
            open_.pop()
        if open_:
            spent[open_[-1][1]] -= event["dur"]
        spent[event["name"]] += event["dur"]
        open_.append((end, event["name"]))


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _within(spans: Iterable[Span], window: Span) -> list[Span]:
    cut = ((max(start, window[0]), min(end, window[1])) for start, end in spans)
    return [(start, end) for start, end in cut if start < end]


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _overlap(first: Sequence[Span], second: Sequence[Span]) -> float:
    """The length of what both cover; each is sorted and free of overlaps."""
    total, at = 0.0, 0
    for start, end in first:
        while at < len(second) and second[at][1] <= start:
            at += 1
        look = at
        while look < len(second) and second[look][0] < end:
            total += min(end, second[look][1]) - max(start, second[look][0])
            look += 1
    return total
