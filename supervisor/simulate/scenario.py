"""A scenario: everything that a simulation is told. Frozen; unknown keys and impossible numbers are refused."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from contract.config import RunConfig
from contract.config.base import Section
from contract.config.checkpoint import Checkpoint
from contract.interval import best_interval
from supervisor.simulate.laws import Law, parse

HOUR_S, DAY_S = 3600.0, 86_400.0
_TEXT = PlainSerializer(str, return_type=str)


def _parse_or_auto(value: Any) -> Law | None:
    return None if value in {None, "auto"} else parse(value)


Duration = Annotated[Law, BeforeValidator(parse), _TEXT]
"""Seconds: a number, or a distribution as text (laws.HELP)."""
Detection = Annotated[
    Law | None,
    BeforeValidator(_parse_or_auto),
    PlainSerializer(lambda law: "auto" if law is None else str(law), return_type=str),
]
"""The same, or "auto": what the real judgement needs with the run's limits."""
Share = Annotated[float, Field(ge=0, le=1)]


class Kind(StrEnum):
    """What a fault does to the run."""

    CRASH = "crash"  # a worker ends; its node is as good as before
    NODE = "node"  # a node is lost, and comes back after a repair
    HANG = "hang"  # a worker stands still, nothing ends
    SLOW = "slow"  # a node drags all others, until somebody takes it out
    SDC = "sdc"  # wrong numbers: work since then is void


class Part(Section):
    """A section that may come from JSON and TOML: words for enums, lists for tuples."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=False)


class Detect(Part):
    """Time from the fault until the run's failure is known, by kind."""

    crash: Detection = None
    node: Detection = None
    hang: Detection = None
    slow: Detection = Law(name="lognormal", first=1800.0, second=1.0)
    """The judgement does not know slowness: a person, or a monitor beside it."""
    sdc: Detection = Law(name="constant", first=3600.0)
    """Work between corruption and discovery, all of it void."""


class Arrival(Part):
    """One fault of a trace."""

    at_s: Annotated[float, Field(ge=0)]
    kind: Kind | None = None


class Scenario(Part):
    """Cluster, faults, costs and policy. Times in seconds unless the name says otherwise."""

    days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """Elapsed time that is simulated, from the first step on."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 128
    gpus_per_node: Annotated[int, Field(ge=1, le=72)] = 8
    spares: Annotated[int, Field(ge=0, le=1000)] = 0
    """Nodes in the same allocation that stand in for a lost one (`job.spare_nodes`)."""
    cluster: Annotated[int, Field(ge=0)] = 0
    """Nodes of the partition; 0: others can always be had for a lost one, in a new job."""
    rate: Annotated[float, Field(ge=0)] = 4.0
    """Failures per 1,000 node-days."""
    mtbf_h: Annotated[float, Field(ge=0)] = 0.0
    """Mean running time (h) between failures of the job. More than 0: used instead of `rate`."""
    stops: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Exactly so many failures at random times of the simulated days, instead of a rate."""
    trace: tuple[Arrival, ...] = ()
    """Failures at these elapsed times, instead of a rate. One that falls into a restart strikes when it is over."""
    gaps: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """Running times between failures, one after the other, instead of a rate; the run ends with the last."""
    shape: Annotated[float, Field(gt=0, le=20)] = 1.0
    """Weibull shape of the running time to the next failure; 1 is exponential."""
    spread: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Gamma shape of the nodes' own rates (0.88 in a published trace); 0: all nodes are alike."""
    lemons: Annotated[int, Field(ge=0)] = 0
    """Nodes that fail `lemon_factor` times as often, on top of the rate of the others."""
    lemon_factor: Annotated[float, Field(ge=1)] = 100.0
    lemon_kind: Kind = Kind.CRASH
    """What a lemon does when it fails."""
    bursts: Share = 0.0
    """Share of node losses that take more than one node."""
    kinds: dict[Kind, Annotated[float, Field(ge=0)]] = Field(default_factory=lambda: {Kind.CRASH: 1.0})
    """Weights of the kinds of faults."""
    relapse: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """After a crash: chance that the same node, if it is used again, fails again before the first step."""
    step_s: Annotated[float, Field(gt=0)] = 10.0
    """One optimizer step."""
    interval: Literal["config", "auto"] | Annotated[float, Field(gt=0)] = "config"
    """Seconds of training between two saves; `config`: as [checkpoint] says; `auto`: the best one, without bounds."""
    checkpoint_cost: Annotated[float, Field(ge=0)] = 10.0
    """Standstill of one save (s)."""
    checkpoint_lag: Annotated[float, Field(ge=0)] = 0.0
    """Time (s) after the standstill until the save can be resumed from (written in the background)."""
    detect: Detect = Field(default_factory=Detect)
    restart: Duration = Law(first=30.0)
    """Restart in place: order, new workers, process groups, first step."""
    start: Duration = Law(name="lognormal", first=180.0, second=0.5)
    """Start of a new job's workers, cold: agents, imports, process groups, first step."""
    load: Duration = Law(first=60.0)
    """Loading of the checkpoint, at every restart."""
    queue: Duration = Law(first=60.0)
    """Wait of a new job in the queue when enough nodes are up."""
    node_timeout: Annotated[float, Field(ge=0)] = 300.0
    """Slurm's time-out (SlurmdTimeout) for a job that ends while a node of it does not answer."""
    repair: Duration = Law(name="weibull", first=0.45, second=50.7 * HOUR_S)
    """Time until a lost node can be used again."""
    person: Duration = Law(name="uniform", first=HOUR_S, second=8 * HOUR_S)
    """Time until somebody resumes a run that the supervisor has given up."""
    slow_share: Share = 0.3
    """Part of the speed that a slow node costs."""
    planned_every_h: Annotated[float, Field(ge=0)] = 0.0
    """Running hours between two planned stops (maintenance, changes); 0: none."""
    planned: Duration = Law(first=0.0)
    """Time that one planned stop costs."""
    exposed: bool = False
    """Whether faults also strike while the run restarts; else only while it trains."""
    policy: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Sections of run.toml (`supervisor`, `monitor`, `checkpoint`, `job`) that differ from their defaults."""

    def contradictions(self) -> list[str]:
        """Problems that no single key shows; each `key: sentence`."""
        found = []
        if self.cluster and self.cluster < self.nodes + self.spares:
            found.append(
                f"cluster: {self.cluster} nodes cannot hold a job of {self.nodes} and {self.spares} spares"
            )
        if self.lemons > self.nodes:
            found.append(f"lemons: {self.lemons} of {self.nodes} nodes")
        if sum(self.kinds.values()) <= 0:
            found.append("kinds: the weights add up to nothing")
        if sum(map(bool, (self.stops, self.trace, self.gaps))) > 1:
            found.append("stops, trace, gaps: only one of them says when failures come")
        return found

    @property
    def horizon_s(self) -> float:
        return self.days * DAY_S

    @property
    def node_rate(self) -> float:
        """Failures per second of a usual node."""
        if self.mtbf_h:
            return 1 / (self.mtbf_h * HOUR_S * self.nodes)
        return self.rate / 1000 / DAY_S

    @property
    def mtbf_s(self) -> float:
        """Mean time (s) between failures of the job as it begins; infinite without failures."""
        arrivals = self.stops or len(self.trace)
        if arrivals:
            return self.horizon_s / arrivals
        if self.gaps:
            return sum(self.gaps) / len(self.gaps)
        total = self.node_rate * (self.nodes + self.lemons * (self.lemon_factor - 1))
        return 1 / total if total else float("inf")

    @property
    def config(self) -> RunConfig:
        """The configuration that the decision functions are given."""
        sections = {name: dict(values) for name, values in self.policy.items()}
        sections.setdefault("job", {}).update(
            executor="slurm",
            nodes=self.nodes,
            spare_nodes=self.spares,
            ranks_per_node=1,
            command=["simulated"],
        )
        sections["run"] = {"name": "simulated", "steps": 10**12}
        return RunConfig.model_validate(sections)

    def interval_s(self, config: RunConfig) -> float:
        """Seconds of training between two saves."""
        if self.interval == "config":
            return self._as_configured(config.checkpoint)
        if self.interval == "auto":
            return min(max(best_interval(self.mtbf_s, self.checkpoint_cost), self.step_s), self.horizon_s)
        return self.interval

    def _as_configured(self, wanted: Checkpoint) -> float:
        """As the trainer does it, once it knows the cost of a save and the failures of the run."""
        steps, minutes = wanted.interval_steps * self.step_s, wanted.interval_minutes * 60
        if steps or minutes:
            return min(seconds for seconds in (steps, minutes) if seconds)
        least, most = wanted.auto_least_minutes * 60, wanted.auto_most_minutes * 60
        return min(most, max(least, best_interval(self.mtbf_s, self.checkpoint_cost)))
