"""SLOW: steps take longer than the run's own usual, and which rank the others wait for. Told, not killed."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from contract.beat import WorkerBeat
from contract.history import Notice
from contract.states import Cause, VerdictKind
from supervisor.core.curve import Pace
from supervisor.core.look import Look, some
from supervisor.core.observation import NodeSeen
from supervisor.core.verdict import Verdict

_SPREADS = 6.0  # robust standard deviations by which slow steps stand out of the usual scatter
_EXPLAINS = 0.15  # a rank to blame loses at least this share of what a step lost,
_BEHIND = 1.1  # and works this much longer than the others' median
# Where a rank's time is its own. The optimizer holds collectives, and from ZeRO 2 on the backward pass too: there the
# others wait for the slow one. With ZeRO 3 ranks wait for each other in every layer, and hardly one stands out.
_OWN = ("data", "forward", "backward")
_COLLECTIVES_FROM = 2


@dataclass(frozen=True, kw_only=True)
class _Straggler:
    """A rank that works longer than the others, and in which phase it loses most."""

    seen: NodeSeen
    rank: int
    work_s: float
    others_s: float
    phase: str


def judge_slow(look: Look) -> Verdict | None:
    """SLOW while the pace is below usual, TOO_SLOW when the policy gives the node up; None when it is not slow."""
    observation, monitor = look.observation, look.config.monitor
    curve = observation.curve
    at = (observation.attempt, observation.generation)
    if monitor.on_slow == "ignore" or curve is None or curve.pace is None:
        return None
    if (curve.attempt, curve.generation) != at:
        return None
    pace = curve.pace
    notice = open_notice(look.history.notices)
    usual_s, limit_s = pace.usual_s, slow_limit(pace, monitor.slow_factor)
    if notice is not None:  # the usual pace from before it, and half the way back is not yet fast
        usual_s = _figure(notice.seen.limits, "usual_s", usual_s)
        limit_s = fast_again(notice, pace, monitor.slow_factor)
    if pace.recent_s <= limit_s:
        return None
    stragglers = _stragglers(look, pace.recent_s - usual_s)
    return _slow(look, pace, usual_s, limit_s, stragglers, notice)


def slow_limit(pace: Pace, factor: float) -> float:
    """Seconds a step from which the run is slow."""
    return max(factor * pace.usual_s, pace.usual_s + _SPREADS * pace.spread_s)


def fast_again(notice: Notice, pace: Pace, factor: float) -> float:
    """Seconds a step below which a slow run is fast again: half the way to the usual of before."""
    usual_s = _figure(notice.seen.limits, "usual_s", pace.usual_s)
    limit_s = _figure(notice.seen.limits, "limit_s", factor * usual_s)
    return (usual_s + limit_s) / 2


def same_plan(notice: Notice, pace: Pace) -> bool:
    """Whether steps are still of the size that was called slow."""
    tokens = _figure(notice.seen.limits, "tokens", pace.tokens)
    return not abs(pace.tokens / tokens - 1) > 0.2


def open_notice(notices: Mapping[str, Notice]) -> Notice | None:
    """The notice of slowness that lasts."""
    found = notices.get(Cause.SLOW)
    return found if found is not None and found.over is None else None


def _figure(limits: Mapping[str, object], key: str, otherwise: float) -> float:
    value = limits.get(key)
    return float(value) if isinstance(value, int | float) else otherwise


def _stragglers(look: Look, lost_s: float) -> list[_Straggler]:
    """Ranks whose own work takes longer than that of the others, the slowest first."""
    divided = look.config.job.command or look.config.deepspeed.zero_stage >= _COLLECTIVES_FROM
    own = _OWN[:-1] if divided else _OWN
    told = [(seen, worker) for seen, worker in look.live_workers if worker.spent]
    if len(told) < 2:
        return []
    usual = {phase: statistics.median(worker.spent.get(phase, 0.0) for _, worker in told) for phase in own}
    middle = statistics.median(_work(worker, own) for _, worker in told)
    found = []
    for seen, worker in told:
        work = _work(worker, own)
        others = middle
        if len(told) == 2:
            other = next(item for _, item in told if item is not worker)
            others = _work(other, own)
            usual = {phase: other.spent.get(phase, 0.0) for phase in own}
        if work - others >= _EXPLAINS * lost_s and work >= _BEHIND * others:
            phase = max(own, key=lambda name: worker.spent.get(name, 0.0) - usual[name])
            found.append(_Straggler(seen=seen, rank=worker.rank, work_s=work, others_s=others, phase=phase))
    return sorted(found, key=lambda item: (-item.work_s, item.rank))


def _work(worker: WorkerBeat, own: tuple[str, ...]) -> float:
    return sum(worker.spent.get(phase, 0.0) for phase in own)


def _slow(
    look: Look,
    pace: Pace,
    usual_s: float,
    limit_s: float,
    stragglers: list[_Straggler],
    notice: Notice | None,
) -> Verdict:
    ranks = tuple(item.rank for item in stragglers)
    nodes = tuple(dict.fromkeys(item.seen.node for item in stragglers))
    facts = f"steps take {pace.recent_s:.3g} s since step {pace.since}, usual {usual_s:.3g} s (limit {limit_s:.3g} s)"
    who = "no rank stands out: storage, network or all nodes alike"
    if stragglers:
        first = stragglers[0]
        who = (
            f"the others wait for rank {some(tuple(str(rank) for rank in ranks))} on {some(nodes)}, which takes"
            f" {first.work_s:.3g} s a step in {first.phase} and the like where they take {first.others_s:.3g} s"
        )
    give_up = _gives_way(look, nodes, notice)
    return Verdict(
        kind=VerdictKind.TOO_SLOW if give_up else VerdictKind.SLOW,
        reason=f"{facts}; {who}" + ("; a spare takes its place" if give_up else ""),
        cause=Cause.SLOW,
        suspects=ranks,
        nodes=nodes,
        step=look.observation.step,
        limits={
            "recent_s": pace.recent_s,
            "usual_s": usual_s,
            "limit_s": limit_s,
            "tokens": pace.tokens,
            "since": pace.since,
            "phase": stragglers[0].phase if stragglers else "",
            "work_s": stragglers[0].work_s if stragglers else None,
            "others_s": stragglers[0].others_s if stragglers else None,
        },
    )


def _gives_way(look: Look, nodes: tuple[str, ...], notice: Notice | None) -> bool:
    """Whether the policy replaces this node now: slow for long, a spare is there, and little is lost by it."""
    monitor, observation = look.config.monitor, look.observation
    if monitor.on_slow != "replace" or notice is None or len(nodes) != 1 or look.pausing or look.ending:
        return False
    if look.now - notice.at < monitor.slow_replace_s or tuple(notice.seen.nodes[:1]) != nodes:
        return False
    spares = [seen for seen in look.beating if seen.node not in look.member_set]
    saved = observation.checkpoint
    since = observation.step - saved.step if saved is not None else observation.step
    return bool(spares) and since <= max(2, look.config.checkpoint.interval_steps // 10)
