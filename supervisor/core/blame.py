"""Which nodes are under suspicion, on what evidence, until when. Blame is soft (rule 13).

Progress forgives the program, not the machine: a node that breaks every few hours does so between checkpoints. What
it did counts until it is too old, and two failures on one node count only where chance does not explain them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from contract.config import RunConfig
from contract.events import Judged
from contract.history import History
from contract.states import Cause, VerdictKind
from supervisor.diagnose.catalogue import Tier
from supervisor.diagnose.live import known_entry

_HOUR_S = 3600.0
_CHANCE = 0.1  # so many nodes of a job may come under suspicion by chance alone
# What a bad machine does to a program. A program's own mistakes come back on rank 0's node for no fault of it.
_MACHINE_LIKE = frozenset(
    {Cause.GPU_ERROR, Cause.GPU_HARDWARE, Cause.SIGNAL, Cause.HANG, Cause.NETWORK, Cause.FILESYSTEM}
)


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """`failures`: those that count against the node; `at`: the last of them (journal time); `cause`: its class."""

    node: str
    failures: int
    at: float
    cause: str


def node_is_gone(failure: Judged) -> bool:
    """Whether the failure itself took its nodes away, or they could not even start."""
    given_up = {VerdictKind.NODE_LOST, VerdictKind.TOO_SLOW}
    return failure.verdict in given_up or failure.cause == Cause.LAUNCH


def suspects(history: History, config: RunConfig, now: float) -> dict[str, Suspect]:
    """The nodes that the run had better do without, those with the newest evidence first."""
    since = now - config.supervisor.blame_hours * _HOUR_S
    excluded_since = now - config.supervisor.exclude_hours * _HOUR_S
    found: dict[str, Suspect] = {}
    counted: dict[str, list[tuple[float, Judged]]] = {}
    for at, failure in _failures(history, since):
        at_once = node_is_gone(failure) or _names_the_machine(failure)
        if at_once and at >= excluded_since:
            found |= {node: _suspect(node, [(at, failure)]) for node in failure.nodes}
        if (
            not at_once
            and len(failure.nodes) == 1
            and Cause(failure.cause) in _MACHINE_LIKE
            and not _victim(failure)
        ):
            counted.setdefault(failure.nodes[0], []).append((at, failure))
    for at, body in history.left_out:
        if at >= excluded_since:
            found[body.node] = Suspect(node=body.node, failures=1, at=at, cause=Cause.LAUNCH)
    size = config.job.nodes + config.job.spare_nodes
    total = sum(len(items) for items in counted.values())
    for node, items in counted.items():
        hours = config.supervisor.exclude_hours * 2.0 ** min(len(items) - 2, 20)
        if items[-1][0] >= now - hours * _HOUR_S and not _chance(len(items), total, size):
            found[node] = _suspect(node, items)
    for node, items in _without_progress(history).items():
        if len(items) > 1 and items[-1][0] >= excluded_since:
            found.setdefault(node, _suspect(node, items))
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].at, pair[0])))


def _failures(history: History, since: float) -> Iterator[tuple[float, Judged]]:
    for attempt in history.attempts:
        for generation in attempt.generations:
            if generation.failure is not None and (generation.failed_at or 0.0) >= since:
                yield generation.failed_at or 0.0, generation.failure


def _without_progress(history: History) -> dict[str, list[tuple[float, Judged]]]:
    """Failures since the last checkpoint by the node that was first to blame; victims' words blame nobody."""
    found: dict[str, list[tuple[float, Judged]]] = {}
    for item in history.failures:
        if item.verdict.nodes and not _victim(item.verdict):
            found.setdefault(item.verdict.nodes[0], []).append((item.at, item.verdict))
    return found


def _names_the_machine(failure: Judged) -> bool:
    entry = known_entry(failure.entry)
    return entry is not None and entry.blame and len(failure.nodes) == 1


def _victim(failure: Judged) -> bool:
    entry = known_entry(failure.entry)
    return Cause(failure.cause).names_a_peer or (entry is not None and entry.tier is Tier.VICTIM)


def _chance(failures: int, total: int, nodes: int) -> bool:
    """Whether some node of so many would have so many of the failures if all were alike (Poisson's upper tail)."""
    if failures < 2:
        return True
    mean = total / nodes
    term = below = math.exp(-mean)
    for count in range(1, failures):
        term *= mean / count
        below += term
    return nodes * (1.0 - below) > _CHANCE


def _suspect(node: str, items: list[tuple[float, Judged]]) -> Suspect:
    at, last = items[-1]
    return Suspect(node=node, failures=len(items), at=at, cause=last.cause)
