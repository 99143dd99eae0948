"""Which nodes carry the next generation, or are kept out of the next attempt. Node blame is soft (rule 13)."""

from contract.events import Judged
from contract.history import History
from contract.layout import by_number
from contract.states import AgentPhase, Cause, JobState, VerdictKind
from supervisor.core.case import Case

_HOUR_S = 3600.0


def members_in_place(case: Case, failure: Judged) -> tuple[str, ...]:
    """Members of the next generation in the same attempt; () when it cannot be had there."""
    generation = case.generation
    if generation is None or not _in_place_allowed(case, failure):
        return ()
    fit = _fit(case, failure)
    suspects = _failed_twice(case.history) if not case.local else frozenset()
    members = [node for node in generation.members if node in fit]
    spares = sorted(fit - set(generation.members), key=by_number)
    ranking = [node for node in (*members, *spares) if node not in suspects]
    ranking += [node for node in members if node in suspects]  # blame is soft: better they than none
    chosen = set(ranking[: case.config.job.nodes])
    if len(chosen) < case.config.job.nodes:
        return ()
    return tuple(node for node in (*members, *spares) if node in chosen)


def excluded(case: Case) -> tuple[str, ...]:
    """Nodes that the next attempt does without: lost ones, and those that failed twice without progress."""
    if case.local:
        return ()
    horizon = case.now - case.config.supervisor.exclude_hours * _HOUR_S
    blamed: dict[str, float] = {}
    for attempt in case.history.attempts:
        for generation in attempt.generations:
            failure, at = generation.failure, generation.failed_at
            if failure is not None and at is not None and at >= horizon:
                blamed |= dict.fromkeys(_blamed(case.history, failure), at)
    newest_first = sorted(blamed, key=lambda node: (-blamed[node], node))
    # The job's own size stands for the partition's, which is at least as large.
    size = case.config.job.nodes + case.config.job.spare_nodes
    most = max(1, int(case.config.supervisor.exclude_share * size))
    return tuple(sorted(newest_first[:most]))


def held_by_dead_nodes(case: Case) -> bool:
    """The job is over but for nodes that answer nobody: waiting for them costs Slurm's whole node time-out.

    The next attempt does without them, and what may still run there is fenced by its number (rule 6).
    """
    job = case.observation.job
    if case.job_state is not JobState.ENDING or not job.nodes:
        return False
    return set(job.nodes) <= set(job.dead) & set(excluded(case))


def affordable(
    exclude: tuple[str, ...], usable: frozenset[str], known: frozenset[str], needed: int
) -> tuple[str, ...]:
    """The exclusions that Slurm can honour: nodes that exist, and never so many that the job cannot start.

    `exclude` names the best founded first; `usable` are the nodes on which a job could start. A node that is down
    costs nothing today, but the job must find enough nodes once it is repaired.
    """
    kept: list[str] = []
    left = len(usable)
    for node in exclude:
        costs = node in usable
        enough = left > needed if costs else len(known) - len(kept) > needed
        if node in known and enough:
            kept.append(node)
            left -= costs
    return tuple(kept)


def _in_place_allowed(case: Case, failure: Judged) -> bool:
    """The job runs, or agents beat while the queue is silent; and the limit of such restarts is not reached."""
    if case.job_state not in {JobState.RUNNING, JobState.UNKNOWN} or failure.verdict == VerdictKind.SAVED:
        return False
    if case.newest is None or case.newest.cancel is not None:
        return False
    here = sum(item.verdict.attempt == failure.attempt for item in case.history.failures)
    return max(1, here) <= case.config.supervisor.in_place_limit


def _fit(case: Case, failure: Judged) -> set[str]:
    """Nodes whose agent lives, beats and has no thought of leaving."""
    gone = set(failure.nodes) if _node_is_gone(failure) else set()
    # An agent may live on where Slurm has taken the node out of the job: nothing new starts there.
    ours = case.observation.job.nodes if case.job_state is JobState.RUNNING else ()
    return {
        seen.node
        for seen in case.observation.nodes
        if seen.beat is not None
        and case.is_fresh(seen)
        and seen.node not in gone
        and (not ours or seen.node in ours)
        and seen.beat.phase is not AgentPhase.LEAVING
        and seen.beat.done_code is None
    }


def _node_is_gone(failure: Judged) -> bool:
    return failure.verdict == VerdictKind.NODE_LOST or failure.cause == Cause.LAUNCH


def _blamed(history: History, failure: Judged) -> frozenset[str]:
    if _node_is_gone(failure):
        return frozenset(failure.nodes)
    return _failed_twice(history) & frozenset(failure.nodes)


def _failed_twice(history: History) -> frozenset[str]:
    """Nodes that were the first to blame twice without a new checkpoint between. Victims' words blame nobody."""
    counts: dict[str, int] = {}
    for item in history.failures:
        verdict = item.verdict
        if verdict.nodes and not Cause(verdict.cause).names_a_peer:
            counts[verdict.nodes[0]] = counts.get(verdict.nodes[0], 0) + 1
    return frozenset(node for node, count in counts.items() if count > 1)
