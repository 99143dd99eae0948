"""What a verdict rested on, small enough for the journal, whole enough to judge again (design rule 2)."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from contract.events import Judged, Noticed
from supervisor.core.observation import NodeSeen, Observation
from supervisor.core.verdict import Verdict

NODES = 24
OTHERS = 4  # of the nodes, so many that have nothing to do with the verdict: absence shows against them
EXITS = 64
WORKERS = 16


def judgement(observation: Observation, verdict: Verdict) -> Judged:
    """The journal's event for this verdict, with what it rests on: `Noticed` when training goes on."""
    limits: Mapping[str, object] = plain(verdict.limits)
    return (Noticed if verdict.told else Judged)(
        attempt=observation.attempt,
        generation=observation.generation,
        verdict=verdict.kind,
        cause=verdict.cause,
        reason=verdict.reason,
        step=verdict.step,
        signature=verdict.signature,
        entry=verdict.entry,
        suspects=verdict.suspects,
        nodes=verdict.nodes,
        detected_s=verdict.detected_s,
        lines=verdict.lines,
        observation=bounded(observation, verdict),
        limits=limits,
    )


def bounded(observation: Observation, verdict: Verdict) -> dict[str, Any]:
    """The observation as JSON: the nodes and exits nearest to the verdict, and how many there were."""
    nodes = sorted(observation.nodes, key=lambda seen: _distance(seen, verdict))
    exits = sorted(observation.exits, key=lambda item: (item.rank not in verdict.suspects, item.ended_s))
    kept = nodes if len(nodes) <= NODES else nodes[: NODES - OTHERS] + nodes[-OTHERS:]
    small = replace(
        observation,
        nodes=tuple(_trimmed(seen, verdict) for seen in kept),
        exits=tuple(exits[:EXITS]),
        requests=(),
        copies={},
        neighbours=(),  # no verdict rests on them
    )
    small = replace(
        small,
        unlisted_ends=len(_ended(observation)) - len(_ended(small)),
        unlisted_beating=max(0, len(nodes) - NODES),
    )
    value = plain(small)
    assert isinstance(value, dict)
    return value | {"nodes_in_all": len(nodes), "exits_in_all": len(exits)}


def _ended(observation: Observation) -> set[int]:
    """Ranks whose end is told, by a record or by a beat."""
    beaten = {worker.rank for _, worker in observation.workers if worker.exit_code is not None}
    return beaten | {item.rank for item in observation.exits if not item.ordered}


def _distance(seen: NodeSeen, verdict: Verdict) -> tuple[bool, bool, str]:
    ranks = {worker.rank for worker in seen.beat.workers} if seen.beat else set()
    return (seen.node not in verdict.nodes, not ranks & set(verdict.suspects), seen.node)


def _trimmed(seen: NodeSeen, verdict: Verdict) -> NodeSeen:
    if seen.beat is None:
        return seen
    workers = sorted(seen.beat.workers, key=lambda worker: (worker.rank not in verdict.suspects, worker.rank))
    return replace(seen, beat=replace(seen.beat, workers=tuple(workers[:WORKERS]), health={}))


def plain(value: Any) -> Any:
    """JSON values only; a number that is none (NaN, infinity) becomes null."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
