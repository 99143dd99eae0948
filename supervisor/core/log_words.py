"""What the logs add to a verdict. Exit records and the queue outrank them: they explain only what these leave open."""

from collections.abc import Iterator
from dataclasses import replace

from contract.states import Cause, VerdictKind
from supervisor.core.observation import LogLine, Observation
from supervisor.core.text import one_line
from supervisor.core.verdict import Verdict
from supervisor.diagnose.catalogue import Entry, Tier
from supervisor.diagnose.live import known_entry

_OPEN = frozenset({Cause.UNEXPLAINED, Cause.SIGNAL})
# What kills a process from outside without leaving a word in it.
_KILLS = frozenset({Cause.HOST_OOM, Cause.GPU_HARDWARE, Cause.NODE_FAILURE})
_BEST_FIRST = (Tier.ROOT, Tier.OUTSIDE, Tier.WEAK, Tier.VICTIM)
_CONTEXT = 4


def with_logs(verdict: Verdict, observation: Observation) -> Verdict:
    """The verdict, explained by the logs where nothing better explains it; their lines as context in any case."""
    if not verdict.failed or not observation.logs:
        return verdict
    if verdict.cause in _OPEN and (found := _explanation(verdict, observation.logs)) is not None:
        line, entry = found
        return replace(
            verdict,
            cause=entry.cause,
            entry=entry.name,
            signature="" if entry.cause in _KILLS else f"{entry.cause}|{entry.name}",
            nodes=verdict.nodes or ((line.node,) if line.node and entry.blame else ()),
            reason=f'{verdict.reason}; the log says "{one_line(line.text, 160)}"',
            lines=(*verdict.lines[-7:], line.text),
        )
    if verdict.lines:
        return verdict
    return replace(verdict, lines=tuple(line.text for line in observation.logs[-_CONTEXT:]))


def _explanation(verdict: Verdict, lines: tuple[LogLine, ...]) -> tuple[LogLine, Entry] | None:
    """The first line of the best kind, of the place where it happened."""
    found = [(line, entry) for line, entry in _of_the_place(verdict, lines) if _fits(verdict, entry)]
    return min(found, key=lambda pair: _BEST_FIRST.index(pair[1].tier), default=None)


def _of_the_place(verdict: Verdict, lines: tuple[LogLine, ...]) -> Iterator[tuple[LogLine, Entry]]:
    for line in lines:
        entry = known_entry(line.entry)
        if entry is None or line.remark or entry.tier not in _BEST_FIRST:
            continue
        other_node = bool(line.node and verdict.nodes) and line.node not in verdict.nodes
        other_rank = line.rank is not None and bool(verdict.suspects) and line.rank not in verdict.suspects
        if verdict.kind is VerdictKind.ENDED or not (other_node or other_rank):
            yield line, entry


def _fits(verdict: Verdict, entry: Entry) -> bool:
    """A process that was killed said nothing about that: only what kills from outside explains it."""
    killed = verdict.cause is Cause.SIGNAL and verdict.kind is VerdictKind.CRASHED
    return entry.cause not in _OPEN and (entry.cause in _KILLS or not killed)
