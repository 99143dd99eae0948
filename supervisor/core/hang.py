"""HUNG: the rank that is behind has stood still for longer than its phase allows."""

from contract.beat import WorkerBeat
from contract.states import Cause, VerdictKind
from supervisor.core.limits import Limit, limit_for
from supervisor.core.look import Look, position
from supervisor.core.observation import NodeSeen
from supervisor.core.verdict import Verdict

_SAME_S = 0.001  # counters that stopped this close together are a tie
_STOPPED = frozenset({"T", "t"})
_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in an uninterruptible call",
    "Z": "dead and not reaped",
}


def judge_hang(look: Look) -> Verdict | None:
    """Only the rank furthest behind can hang a run: all others wait for it, and their standing still is no sign."""
    # A node whose beat is late may hide the rank that is behind.
    if any(not look.is_fresh(seen) for seen in look.member_nodes):
        return None
    live = look.live_workers
    if not live or not look.measurable:
        return None
    behind = _behind(live)
    longest = max(worker.idle_s for _, worker in behind)
    suspects = [(seen, worker) for seen, worker in behind if worker.idle_s >= longest - _SAME_S]
    worker = suspects[0][1]
    limit = limit_for(
        worker.phase,
        look.config.monitor,
        look.observation.usual,
        first_step_done=look.first_step_done(worker),
    )
    # Eyes that were shut judge nothing: the standstill must lie within what we have watched.
    if worker.idle_s <= limit.seconds or look.observation.watched_s <= limit.seconds:
        return None
    if any(_may_explain(seen, worker, look.config.monitor.beat_s) for seen in look.member_nodes):
        return None  # the rules for nodes decide as soon as its silence is long enough, or its beat is back
    return _hung(look, suspects, limit)


def _may_explain(seen: NodeSeen, worker: WorkerBeat, beat_s: float) -> bool:
    """Whether a node fell silent while the worker stood still: what stopped the node may have stopped the rank."""
    return seen.silent_s > max(2 * beat_s, worker.idle_s / 2)


def _behind(live: tuple[tuple[NodeSeen, WorkerBeat], ...]) -> list[tuple[NodeSeen, WorkerBeat]]:
    """Those that the others wait for: whom the kernel shows as stopped, whatever its page says, else who is least far."""
    stopped = [pair for pair in live if pair[1].os_state in _STOPPED]
    least = min(position(worker) for _, worker in live)
    return stopped or [pair for pair in live if position(pair[1]) == least]


def _hung(look: Look, suspects: list[tuple[NodeSeen, WorkerBeat]], limit: Limit) -> Verdict:
    seen, worker = suspects[0]
    ranks = tuple(item.rank for _, item in suspects)
    phase = worker.phase.word
    who = (
        f"rank {worker.rank} on {seen.node}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
    )
    how = f", {_STATES[worker.os_state]}" if worker.os_state in _STATES else ""
    usual = f", usual {limit.usual_s:.1f} s" if limit.usual_s is not None else ""
    reason = (
        f"{who} stands still in {phase} after step {worker.step} for {worker.idle_s:.1f} s{how}"
        f" (limit {limit.seconds:.1f} s{usual})"
    )
    # A stall at start-up or in a save is the node's or the storage's often enough, and a stop comes from outside.
    own = worker.phase.in_step and look.first_step_done(worker) and worker.os_state not in _STOPPED
    return Verdict(
        kind=VerdictKind.HUNG,
        reason=reason,
        cause=Cause.HANG,
        suspects=ranks,
        nodes=tuple(dict.fromkeys(node.node for node, _ in suspects)),
        step=worker.step,
        signature=f"hang|{phase}|rank {ranks[0]}" if own else "",
        detected_s=worker.idle_s + seen.silent_s,
        limits={
            "phase": phase,
            "idle_s": worker.idle_s,
            "os_state": worker.os_state,
            "watched_s": look.observation.watched_s,
            **limit.facts(),
        },
    )
