"""Replicas of a scenario, what they come to, what limits them, and what one changed number does."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from contract.interval import best_interval
from supervisor.simulate.closed_forms import ettr, spares_needed
from supervisor.simulate.laws import Law
from supervisor.simulate.ledger import Loss
from supervisor.simulate.scenario import DAY_S, Kind, Scenario
from supervisor.simulate.world import World

DEFINITION = "useful / elapsed time, from the first step on; useful is training that no resume repeats, and time in the queue counts as lost"


@dataclass(frozen=True, kw_only=True)
class Replica:
    """What one run of the scenario came to. Seconds."""

    ettr: float
    elapsed_s: float
    useful_s: float
    trained_s: float
    lost_s: Mapping[Loss, float]
    faults: Mapping[str, int]
    counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Result:
    """All replicas of one scenario."""

    scenario: Scenario
    interval_s: float
    seed: int
    replicas: tuple[Replica, ...]

    @property
    def ettr(self) -> float:
        """Mean over the replicas."""
        return fmean(item.ettr for item in self.replicas)

    @property
    def losses(self) -> dict[Loss, float]:
        """Mean seconds by cause."""
        return {loss: fmean(item.lost_s[loss] for item in self.replicas) for loss in Loss}

    @property
    def elapsed_s(self) -> float:
        return fmean(item.elapsed_s for item in self.replicas)

    @property
    def bottleneck(self) -> Loss:
        """What takes most of the lost time."""
        losses = self.losses
        return max(losses, key=lambda loss: losses[loss])

    @property
    def expected(self) -> float | None:
        """The closed form with this run's own mean time between failures and dead time; None without failures.

        For exponential failures it and the simulation agree: a check of the one by the other.
        """
        faults = sum(sum(item.faults.values()) for item in self.replicas)
        if not faults:
            return None
        trained = sum(item.trained_s for item in self.replicas)
        dead = sum(sum(item.lost_s.values()) - _inside(item.lost_s) for item in self.replicas)
        scenario = self.scenario
        return ettr(
            trained / faults,
            dead / faults,
            self.interval_s,
            scenario.checkpoint_cost,
            scenario.checkpoint_lag,
        )


def simulate(scenario: Scenario, *, replicas: int, seed: int) -> Result:
    """Run the scenario so many times, each with random numbers of its own that `seed` decides."""
    config = scenario.config
    found = tuple(_replica(World(scenario, seed, number)) for number in range(replicas))
    return Result(scenario=scenario, interval_s=scenario.interval_s(config), seed=seed, replicas=found)


def _replica(world: World) -> Replica:
    world.run()
    ledger, counts = world.ledger, world.counts
    return Replica(
        ettr=ledger.ettr,
        elapsed_s=ledger.elapsed_s,
        useful_s=ledger.useful_s,
        trained_s=world.trained_s,
        lost_s=dict(ledger.lost_s),
        faults=dict(counts.faults),
        counts={
            "restarts_in_place": counts.in_place,
            "jobs": counts.jobs,
            "time_limits": counts.time_limits,
            "gave_up": counts.gave_up,
            "lemon_faults": counts.lemon_faults,
            "nodes_excluded": len(counts.excluded),
            "most_nodes_in_repair": counts.most_in_repair,
        },
    )


def _inside(lost: Mapping[Loss, float]) -> float:
    """Lost while workers run: not dead time."""
    return lost[Loss.REPEATED] + lost[Loss.CHECKPOINT]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One number changed, everything else and all random numbers the same."""

    what: str
    ettr: float
    gain: float


def sensitivity(result: Result) -> tuple[Change, ...]:
    """What each change would do, the most helpful first."""
    base = result.ettr
    found = []
    for what, scenario in variants(result).items():
        other = simulate(scenario, replicas=len(result.replicas), seed=result.seed).ettr
        found.append(Change(what=what, ettr=other, gain=other - base))
    return tuple(sorted(found, key=lambda change: -change.gain))


def variants(result: Result) -> dict[str, Scenario]:
    """Scenarios with one change each. Only what this scenario has: no spares where no node is ever lost."""
    scenario, every = result.scenario, result.interval_s
    best = best_interval(scenario.mtbf_s, scenario.checkpoint_cost)
    changes: dict[str, dict[str, Any]] = {
        f"save every {every / 2:.0f} s": {"interval": every / 2},
        f"save every {2 * every:.0f} s": {"interval": 2 * every},
    }
    if scenario.interval != "auto" and math.isfinite(best):
        changes[f"save every {max(best, scenario.step_s):.0f} s (auto)"] = {"interval": "auto"}
    for name in ("checkpoint_cost", "checkpoint_lag"):
        if value := getattr(scenario, name):
            changes[f"{name} halved"] = {name: value / 2, "interval": every}
    for name in ("restart", "start", "load", "queue", "repair"):
        law: Law = getattr(scenario, name)
        if law.mean:
            changes[f"{name} halved"] = {name: law.scaled(0.5)}
    changes |= _rates(scenario) | _detections(scenario)
    if Kind.NODE in scenario.kinds and not scenario.cluster:
        for spares in sorted({0, scenario.spares // 2, max(4, 2 * scenario.spares)} - {scenario.spares}):
            changes[f"{spares} spare nodes"] = {"spares": min(1000, spares)}
    return {what: scenario.model_copy(update=change) for what, change in changes.items()}


def _rates(scenario: Scenario) -> dict[str, dict[str, Any]]:
    if scenario.trace or scenario.gaps:
        return {}
    name = "stops" if scenario.stops else "mtbf_h" if scenario.mtbf_h else "rate"
    value = getattr(scenario, name)
    halved, doubled = (value * 2, value / 2) if name == "mtbf_h" else (value / 2, value * 2)
    whole = int if name == "stops" else float
    return {"half as many faults": {name: whole(halved)}, "twice as many faults": {name: whole(doubled)}}


def _detections(scenario: Scenario) -> dict[str, dict[str, Any]]:
    if not scenario.kinds.get(Kind.HANG):
        return {}
    late = scenario.detect.model_copy(update={"hang": Law(first=600.0)})
    return {"hangs seen after 600 s (PyTorch's time-out)": {"detect": late}}


# Loss → what it is made of, English and Chinese.
_ADVICE: Mapping[Loss, tuple[str, str]] = MappingProxyType(
    {
        Loss.DETECTION: (
            "faults are seen late: lower the limits of the kinds that take longest",
            "故障发现得晚：降低最慢的那几类的上限",
        ),
        Loss.RESTART: ("a restart in place takes {restart:.0f} s", "原地重启一次要 {restart:.0f} 秒"),
        Loss.LOAD: (
            "loading a checkpoint takes {load:.0f} s at every restart",
            "每次重启加载检查点要 {load:.0f} 秒",
        ),
        Loss.START: (
            "a new job starts in {start:.0f} s: spares keep the run in its job (one job loses {week:.1f} nodes)",
            "新作业启动要 {start:.0f} 秒：备用节点可避免换作业（一个作业平均失去 {week:.1f} 个节点）",
        ),
        Loss.REPEATED: (
            "saves every {every:.0f} s, durable {lag:.0f} s later; {best:.0f} s is best for this cost",
            "每 {every:.0f} 秒保存一次，{lag:.0f} 秒后落盘；按此开销，间隔 {best:.0f} 秒最好",
        ),
        Loss.CHECKPOINT: (
            "a save stops training for {cost:g} s every {every:.0f} s; {best:.0f} s is best for this cost",
            "每 {every:.0f} 秒保存一次，每次停 {cost:g} 秒；按此开销，间隔 {best:.0f} 秒最好",
        ),
        Loss.ENDING: (
            "the old job ends slowly: nodes that answer nobody hold it up",
            "旧作业结束得慢：没有应答的节点拖住了它",
        ),
        Loss.QUEUE: (
            "a new job waits {queue:.0f} s in the queue: spares avoid new jobs (one job loses {week:.1f} nodes)",
            "新作业排队 {queue:.0f} 秒：备用节点可避免换作业（一个作业平均失去 {week:.1f} 个节点）",
        ),
        Loss.NODES: (
            "{repaired:.1f} nodes are in repair on average: {spares} more than the job needs suffice in 99 % of the time",
            "平均 {repaired:.1f} 个节点在修：比作业所需多 {spares} 个，99% 的时间够用",
        ),
        Loss.BACKOFF: (
            "restarts wait because no checkpoint comes between failures",
            "故障之间没有新的检查点，所以重启前要等待",
        ),
        Loss.STOPPED: (
            "the supervisor gives up and a person resumes after {person:.1f} h: the budgets are too small for this rate",
            "看护进程放弃后，人要 {person:.1f} 小时才恢复：对这样的故障率，预算太小",
        ),
        Loss.SLOW: (
            "slow nodes drag the others until somebody takes them out",
            "慢节点一直拖累其他节点，直到有人把它们换下",
        ),
        Loss.PLANNED: (
            "planned stops of {planned:.0f} s every {planned_h:g} h",
            "每 {planned_h:g} 小时有一次 {planned:.0f} 秒的计划内停机",
        ),
    }
)


def advice(result: Result, lang: str = "en") -> str:
    """What the largest loss is made of, with its figures."""
    scenario, loss, chinese = result.scenario, result.bottleneck, lang == "zh"
    if not result.losses[loss]:
        return "没有损失" if chinese else "nothing is lost"
    repaired = scenario.node_rate * scenario.nodes * scenario.repair.mean
    job_s = min(scenario.config.job.time_limit_min * 60, scenario.horizon_s)
    return _ADVICE[loss][chinese].format(
        restart=scenario.restart.mean,
        load=scenario.load.mean,
        start=scenario.start.mean,
        queue=scenario.queue.mean,
        week=job_s / scenario.mtbf_s * _node_share(scenario),
        every=result.interval_s,
        lag=scenario.checkpoint_lag,
        cost=scenario.checkpoint_cost,
        best=max(best_interval(scenario.mtbf_s, scenario.checkpoint_cost), scenario.step_s),
        repaired=repaired,
        spares=spares_needed(repaired),
        person=scenario.person.mean / 3600,
        planned=scenario.planned.mean,
        planned_h=scenario.planned_every_h,
    )


def _node_share(scenario: Scenario) -> float:
    return (scenario.kinds.get(Kind.NODE, 0.0) + scenario.kinds.get(Kind.SLOW, 0.0)) / sum(
        scenario.kinds.values()
    )


def facts(result: Result) -> dict[str, Any]:
    """For programs."""
    values = [item.ettr for item in result.replicas]
    losses, elapsed = result.losses, result.elapsed_s
    faults: Counter[str] = Counter()
    for item in result.replicas:
        faults.update(item.faults)
    count = len(result.replicas)
    names = result.replicas[0].counts
    return {
        "version": 1,
        "ettr": round(result.ettr, 6),
        "ettr_with_spares": round(_with_spares(result), 6),
        "definition": DEFINITION,
        "losses": {loss.value: round(seconds, 3) for loss, seconds in losses.items()},
        "loss_shares": {loss.value: round(seconds / elapsed, 6) for loss, seconds in losses.items()},
        "bottleneck": {
            "cause": result.bottleneck.value,
            "share": round(losses[result.bottleneck] / elapsed, 6),
            "what": advice(result),
        },
        "expected": None if result.expected is None else round(result.expected, 6),
        "elapsed_s": round(elapsed, 3),
        "useful_s": round(fmean(item.useful_s for item in result.replicas), 3),
        "gpu_hours_lost": round(_gpu_hours(result), 1),
        "replicas": count,
        "seed": result.seed,
        "spread": {
            "sd": round(stdev(values), 6) if count > 1 else 0.0,
            "min": min(values),
            "max": max(values),
        },
        "faults": {kind: number / count for kind, number in sorted(faults.items())},
        "counts": {name: fmean(item.counts[name] for item in result.replicas) for name in names},
        "interval_s": round(result.interval_s, 3),
        "mtbf_s": round(result.scenario.mtbf_s, 3) if math.isfinite(result.scenario.mtbf_s) else None,
        "inputs": result.scenario.model_dump(mode="json", exclude={"trace", "gaps"}),
    }


def _with_spares(result: Result) -> float:
    """The ratio of all nodes that the job holds: idle spares count as lost."""
    scenario = result.scenario
    return result.ettr * scenario.nodes / (scenario.nodes + scenario.spares)


def _gpu_hours(result: Result) -> float:
    scenario = result.scenario
    days = sum(result.losses.values()) / DAY_S
    return days * 24 * scenario.nodes * scenario.gpus_per_node
