"""Which nodes carry the next generation, or are kept out of the next attempt. Node blame is soft (rule 13)."""

from contract.events import Judged
from contract.layout import by_number
from contract.states import AgentPhase, JobState, VerdictKind
from supervisor.core.blame import node_is_gone, suspects
from supervisor.core.case import Case
from supervisor.core.look import silent_limit_s
from supervisor.core.observation import NodeSeen


def members_in_place(case: Case, failure: Judged) -> tuple[str, ...]:
    """Members of the next generation in the same attempt; () when it cannot be had there."""
    generation = case.generation
    if generation is None or not _in_place_allowed(case, failure):
        return ()
    fit = _fit(case, failure)
    blamed = frozenset() if case.local else frozenset(suspects(case.history, case.config, case.now))
    members = [node for node in generation.members if node in fit]
    spares = sorted(fit - set(generation.members), key=by_number)
    ranking = [node for node in (*members, *spares) if node not in blamed]
    ranking += [node for node in members if node in blamed]  # blame is soft: better they than none
    chosen = set(ranking[: case.config.job.nodes])
    if len(chosen) < case.config.job.nodes:
        return ()
    return tuple(node for node in (*members, *spares) if node in chosen)


def awaited(case: Case, failure: Judged) -> tuple[str, ...]:
    """Nodes of which we have not heard for a moment, when with them the next generation could be in place; else ().

    A busy machine or file system holds a beat up for longer than a fresh one takes, and for less than a lost one. A
    new attempt would give the whole allocation away for that. Who stays silent is lost by then, and waited for no more.
    """
    limit = silent_limit_s(case.config, case.observation.lag_s)
    if not _in_place_allowed(case, failure) or not 0 <= case.since_failure_s <= limit:
        return ()
    fit = _fit(case, failure)
    late = {seen.node for seen in _unspoilt(case, failure) if seen.silent_s <= limit} - fit
    late |= _unheard(case, failure)
    return tuple(sorted(late, key=by_number)) if len(fit) + len(late) >= case.config.job.nodes else ()


def excluded(case: Case) -> tuple[str, ...]:
    """Nodes that the next attempt should do without, the newest evidence first: lost ones, and those under suspicion.

    How many of them Slurm can do without is `affordable`'s to say, when it is asked about the partition.
    """
    return () if case.local else tuple(suspects(case.history, case.config, case.now))


def held_by_dead_nodes(case: Case) -> bool:
    """The job is over but for nodes that answer nobody: waiting for them costs Slurm's whole node time-out.

    The next attempt does without them, and what may still run there is fenced by its number (rule 6).
    """
    job = case.observation.job
    if case.job_state is not JobState.ENDING or not job.nodes:
        return False
    return set(job.nodes) <= set(job.dead) & set(excluded(case))


def affordable(
    exclude: tuple[str, ...], usable: frozenset[str], known: frozenset[str], needed: int, share: float
) -> tuple[str, ...]:
    """The exclusions that Slurm can honour: nodes that exist, and never so many that the job cannot start.

    `exclude` names the best founded first; `known` is the partition, of which at most `share` is left out (one node,
    unless it is 0); `usable` are the nodes on which a job could start. A node that is down costs nothing today, but
    the job must find enough nodes once it is repaired.
    """
    kept: list[str] = []
    left = len(usable)
    most = max(1, int(share * len(known))) if share else 0
    for node in exclude:
        if len(kept) == most:
            break
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
    return {seen.node for seen in _unspoilt(case, failure) if case.is_fresh(seen)}


def _unspoilt(case: Case, failure: Judged) -> list[NodeSeen]:
    """Nodes with an agent of this attempt against which nothing speaks, but perhaps that their beat is late."""
    gone = set(failure.nodes) if node_is_gone(failure) else set()
    # An agent may live on where Slurm has taken the node out of the job: nothing new starts there.
    ours = case.observation.job.nodes if case.job_state is JobState.RUNNING else ()
    return [
        seen
        for seen in case.observation.nodes
        if seen.beat is not None
        and seen.beat.attempt == case.observation.attempt
        and seen.alive is not False
        and seen.node not in gone
        and (not ours or seen.node in ours)
        and seen.beat.phase is not AgentPhase.LEAVING
        and seen.beat.done_code is None
    ]


def _unheard(case: Case, failure: Judged) -> set[str]:
    """Nodes of a young job whose agent has not appeared yet: a spare may be slower to start than the members."""
    if case.job_state is not JobState.RUNNING or case.observation.running_s > case.config.monitor.start_s:
        return set()
    heard = {seen.node for seen in case.observation.nodes if seen.beat is not None}
    gone = set(failure.nodes) if node_is_gone(failure) else set()
    return set(case.observation.job.nodes) - heard - gone
