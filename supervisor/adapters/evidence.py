"""Evidence that the agents have kept: noticed, read and summed up, once for each failure and each wish."""

from dataclasses import replace

from contract.config import RunConfig
from contract.control import OrderKind
from contract.events import EvidenceKept
from contract.evidence import NodeEvidence, evidence_nodes, read_evidence
from contract.history import AttemptHistory, GenerationHistory, History
from contract.layout import RunDir, by_number
from contract.states import VerdictKind
from supervisor.core.evidence import accused, digest
from supervisor.core.keeping import PATIENCE_S, carried_out
from supervisor.core.observation import Observation

_READ = 256  # nodes whose evidence is read for the digest, the suspects' first
_NAMED = 64  # suspects at most, as of a verdict
_OLD_S = 120.0  # what has not come by then does not come


def evidence_news(
    run: RunDir, history: History, observation: Observation, config: RunConfig, now: float
) -> tuple[EvidenceKept, ...]:
    """Events for what has come since the journal last spoke of it. `now`: the journal's clock."""
    found = [*_asked(run, history, observation, config)]
    for attempt in history.attempts[-2:]:
        for generation in attempt.generations[-2:]:
            kept = _of_failure(run, attempt, generation, now)
            if kept is not None:
                found.append(kept)
    return tuple(found)


def _asked(run: RunDir, history: History, observation: Observation, config: RunConfig) -> list[EvidenceKept]:
    control = observation.control
    wanted = [order for order in control.orders if order.kind == OrderKind.DUMP] if control else []
    found = []
    for order in wanted:
        if order.id in history.dumps or not carried_out(observation, config, order.id):
            continue
        at = observation.generation
        places = sorted(run.attempt(observation.attempt).path.glob(f"evidence/g*/{order.id}"))
        if places:
            at = int(places[-1].parent.name.removeprefix("g"))
        found.append(_kept(run, observation.attempt, at, observation.members, (), order.id)[0])
    return found


def _of_failure(
    run: RunDir, attempt: AttemptHistory, generation: GenerationHistory, now: float
) -> EvidenceKept | None:
    failure, at = generation.failure, generation.failed_at
    if failure is None or at is None or generation.evidence is not None or not 0 <= now - at < _OLD_S:
        return None
    there = set(evidence_nodes(run.attempt(attempt.number).evidence(generation.number)))
    hung = failure.verdict == VerdictKind.HUNG
    expected = set(generation.members) if hung else set(failure.nodes[:1])
    if not there or not (expected <= there or now - at > PATIENCE_S):
        return None
    kept, read = _kept(run, attempt.number, generation.number, tuple(expected), failure.nodes, "")
    if not hung:
        return kept  # survivors of a crash wait for whom they have lost: nobody is to blame for that
    told = accused(read)
    return replace(kept, suspects=told.ranks[:_NAMED], phase=told.phase)


def _kept(
    run: RunDir,
    attempt: int,
    generation: int,
    expected: tuple[str, ...],
    first: tuple[str, ...],
    order: str,
) -> tuple[EvidenceKept, list[NodeEvidence]]:
    directory = run.attempt(attempt).evidence(generation)
    if order:
        directory /= order
    nodes = sorted(evidence_nodes(directory), key=lambda node: (node not in first, by_number(node)))
    read: list[NodeEvidence] = []
    for node in nodes[:_READ]:
        try:
            found = read_evidence(directory, node)
        except (OSError, ValueError):  # it stays in the directory for people
            continue
        if found is not None:
            read.append(found)
    kept = EvidenceKept(
        attempt=attempt,
        generation=generation,
        path=str(directory),
        order=order,
        nodes=tuple(nodes[:_READ]),
        missing=tuple(sorted(set(expected) - set(nodes), key=by_number))[:_READ],
        digest=digest(read),
    )
    return kept, read
