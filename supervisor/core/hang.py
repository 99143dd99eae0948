"""HUNG: the rank that is behind has stood still for longer than its phase allows."""

from contract.beat import WorkerBeat
from contract.states import Cause, VerdictKind
from supervisor.core.limits import Limit, is_busy, limit_for, longer_if_busy, standstill
from supervisor.core.look import Look, position
from supervisor.core.observation import NodeSeen
from supervisor.core.verdict import Verdict

_NAMED = 64  # suspects at most: a verdict must fit the journal
_STOPPED = frozenset({"T", "t"})
_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in an uninterruptible call",
    "Z": "dead and not reaped",
}

_Pair = tuple[NodeSeen, WorkerBeat]


def judge_hang(look: Look) -> Verdict | None:
    """Only the rank furthest behind can hang a run: all others wait for it, and their standing still is no sign."""
    # A node whose beat is late may hide the rank that is behind.
    there = [seen for seen in look.member_nodes if not _left(seen)]
    if any(not look.is_fresh(seen) for seen in there):
        return None
    live = look.live_workers
    if not live or not look.measurable:
        return None
    behind = _behind(live)
    suspects = _suspects(
        behind, all_are=len(behind) == len(live), waits_spin=look.config.job.gpus_per_node > 0
    )
    # Of those at the same place, the last to come there is the run's newest progress: the others wait for it.
    worker = min((item for _, item in behind), key=lambda item: item.idle_s)
    limit = longer_if_busy(
        limit_for(
            worker.phase,
            look.config.monitor,
            look.observation.usual,
            first_step_done=look.first_step_done(worker),
            stopped=worker.os_state in _STOPPED,
        ),
        (item for _, item in suspects),
    )
    still = min(standstill(item) for _, item in suspects)
    # Eyes that were shut judge nothing: the standstill must lie within what we have watched.
    if look.observation.watched_s <= limit.seconds:
        return None
    if still <= limit.seconds and worker.idle_s <= limit.ceiling_s:
        return None
    if any(_may_explain(seen, worker, look.config.monitor.beat_s) for seen in there):
        return None  # the rules for nodes decide as soon as its silence is long enough, or its beat is back
    everywhere = len(live) > 1 and len(suspects) == len(live)
    return _hung(look, suspects[:_NAMED], worker, limit, everywhere=everywhere)


def _left(seen: NodeSeen) -> bool:
    """Whether the agent has said that it leaves: it hides no rank."""
    return seen.beat is not None and seen.beat.done_code is not None


def _may_explain(seen: NodeSeen, worker: WorkerBeat, beat_s: float) -> bool:
    """Whether a node fell silent while the worker stood still: what stopped the node may have stopped the rank."""
    return seen.silent_s > max(2 * beat_s, worker.idle_s / 2)


def _behind(live: tuple[_Pair, ...]) -> list[_Pair]:
    """Those that the others wait for: whom the kernel shows as stopped, whatever its page says, else who is least far."""
    stopped = [pair for pair in live if pair[1].os_state in _STOPPED]
    least = min(position(worker) for _, worker in live)
    return stopped or [pair for pair in live if position(pair[1]) == least]


def _suspects(behind: list[_Pair], *, all_are: bool, waits_spin: bool) -> list[_Pair]:
    """Of those at the same place, the ones that do what the others do not: compute while they wait, or the reverse.

    Where that tells nothing they are all suspects, the longest standstill first.
    """
    measured = all(worker.busy is not None for _, worker in behind)
    busy = [pair for pair in behind if is_busy(pair[1])]
    calm = [pair for pair in behind if not is_busy(pair[1])]
    if all_are and measured and busy and calm:
        # A wait in Gloo sleeps; in NCCL it spins, so that who sleeps there does not wait for the others.
        odd, even = (calm, busy) if waits_spin else (busy, calm)
        behind = even if len(even) < len(odd) else odd
    return sorted(behind, key=lambda pair: (-pair[1].idle_s, pair[1].rank))


def _hung(
    look: Look, suspects: list[_Pair], worker: WorkerBeat, limit: Limit, *, everywhere: bool
) -> Verdict:
    ranks = tuple(item.rank for _, item in suspects)
    phase = worker.phase.word
    nodes = () if everywhere else tuple(dict.fromkeys(node.node for node, _ in suspects))
    state = suspects[0][1].os_state
    how = f", {_STATES[state]}" if state in _STATES else ""
    if limit.busy:
        how += ", busy"
    usual = f", usual {limit.usual_s:.1f} s" if limit.usual_s is not None else ""
    verb = "stands" if len(ranks) == 1 else "stand"
    reason = (
        f"{_who(suspects, everywhere=everywhere, live=len(look.live_workers))} {verb} still in {phase} after step"
        f" {worker.step} for {worker.idle_s:.1f} s{how} (limit {limit.seconds:.1f} s{usual})"
    )
    # A stall at start-up or in a save is the node's or the storage's often enough, and a stop comes from outside.
    own = worker.phase.in_step and look.first_step_done(worker) and state not in _STOPPED
    place = "everywhere" if everywhere else f"rank {ranks[0]}"
    return Verdict(
        kind=VerdictKind.HUNG,
        reason=reason,
        cause=Cause.HANG,
        suspects=ranks,
        nodes=nodes,
        step=worker.step,
        signature=f"hang|{phase}|{place}" if own else "",
        detected_s=worker.idle_s + suspects[0][0].silent_s,
        limits={
            "phase": phase,
            "idle_s": worker.idle_s,
            "os_state": state,
            "busy": worker.busy,
            "quiet_s": worker.quiet_s,
            "everywhere": everywhere,
            "watched_s": look.observation.watched_s,
            **limit.facts(),
        },
    )


def _who(suspects: list[_Pair], *, everywhere: bool, live: int) -> str:
    if everywhere:
        return f"all {live} ranks, at the same point,"
    if len(suspects) == 1:
        return f"rank {suspects[0][1].rank} on {suspects[0][0].node}"
    return f"ranks {', '.join(str(worker.rank) for _, worker in suspects[:8])}"
