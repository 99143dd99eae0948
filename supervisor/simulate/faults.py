"""When faults come, of which kind, and which nodes they hit.

Each question has a random stream of its own, so that two scenarios that differ in one number meet the same faults
(common random numbers): what their results differ by is that number's doing.
"""

import math
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, repeat
from random import Random

from supervisor.simulate.scenario import Kind, Scenario

_MORE = (
    0.6  # of bursts with n ≥ 2 nodes, the share that ends there (sizes in a published trace: 39, 10, 3, 2, …)
)


class Streams:
    """Independent random numbers by name."""

    def __init__(self, seed: int, replica: int) -> None:
        self._seed = f"{seed}/{replica}"
        self._known: dict[str, Random] = {}

    def __getitem__(self, name: str) -> Random:
        if name not in self._known:
            self._known[name] = Random(f"{self._seed}/{name}")
        return self._known[name]

    def once(self, name: str) -> Random:
        """A stream that is used for one draw and not kept."""
        return Random(f"{self._seed}/{name}")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens now. The first node is the one to blame; more than one only in a burst of node losses."""

    kind: Kind
    nodes: tuple[str, ...]


class Faults:
    """The faults of one replica."""

    def __init__(self, scenario: Scenario, streams: Streams) -> None:
        self._scenario, self._streams = scenario, streams
        self._fixed = _arrivals(scenario, streams) if scenario.stops or scenario.trace else None
        self._gaps = list(reversed(scenario.gaps)) if scenario.gaps else None
        lemons = streams["lemons"].sample(range(scenario.nodes), scenario.lemons)
        self.lemons = frozenset(f"n{number}" for number in lemons)
        self._factors: dict[str, float] = {}
        self._members: tuple[str, ...] = ()
        self._sums: list[float] = []

    def wait(self, now: float, members: tuple[str, ...]) -> float | None:
        """Seconds until the next fault if these nodes go on running; None: the trace of gaps is used up."""
        if self._fixed is not None:
            return max(0.0, self._fixed[-1][0] - now) if self._fixed else math.inf
        if self._gaps is not None:
            return self._gaps.pop() if self._gaps else None
        self._weigh(members)
        total = self._sums[-1] * self._scenario.node_rate
        share = self._streams["times"].random()
        if not total:
            return math.inf
        shape = self._scenario.shape
        unit: float = math.pow(-math.log1p(-share), 1 / shape) / math.gamma(1 + 1 / shape)
        return unit / total

    def strike(self, members: tuple[str, ...]) -> Fault:
        """The fault whose time has come."""
        self._weigh(members)
        told = self._fixed.pop()[1] if self._fixed else None
        first = members[
            min(bisect(self._sums, self._streams["nodes"].random() * self._sums[-1]), len(members) - 1)
        ]
        kind = told or self._kind(first)
        more = self._burst(first, members) if kind is Kind.NODE else ()
        return Fault(kind=kind, nodes=(first, *more))

    def _kind(self, node: str) -> Kind:
        share = self._streams["kinds"].random()
        if node in self.lemons and self._streams["lemon-kinds"].random() >= 1 / self._scenario.lemon_factor:
            return self._scenario.lemon_kind
        return _pick(self._scenario.kinds, share)

    def _burst(self, first: str, members: tuple[str, ...]) -> tuple[str, ...]:
        random = self._streams["bursts"]
        if random.random() >= self._scenario.bursts or len(members) == 1:
            return ()
        size = 1
        while random.random() > _MORE:
            size += 1
        others = random.sample(members, min(size + 1, len(members)))
        return tuple(node for node in others if node != first)[:size]

    def _weigh(self, members: tuple[str, ...]) -> None:
        """Running sums of the members' rates, in units of a usual node's."""
        if members is not self._members:
            self._members = members
            alike = not self._scenario.spread and not self.lemons
            factors = repeat(1.0, len(members)) if alike else map(self._factor, members)
            self._sums = list(accumulate(factors))

    def _factor(self, node: str) -> float:
        known = self._factors.get(node)
        if known is None:
            shape = self._scenario.spread
            known = self._streams.once(f"node/{node}").gammavariate(shape, 1 / shape) if shape else 1.0
            known *= self._scenario.lemon_factor if node in self.lemons else 1.0
            self._factors[node] = known
        return known


def _arrivals(scenario: Scenario, streams: Streams) -> list[tuple[float, Kind | None]]:
    """The last first: they are taken from the end."""
    if scenario.trace:
        return sorted(((item.at_s, item.kind) for item in scenario.trace), key=lambda item: -item[0])
    times = sorted(
        (streams["times"].uniform(0, scenario.horizon_s) for _ in range(scenario.stops)), reverse=True
    )
    kinds = exact_kinds(scenario.kinds, scenario.stops)
    streams["kinds"].shuffle(kinds)
    return list(zip(times, kinds, strict=True))


def exact_kinds(weights: Mapping[Kind, float], size: int) -> list[Kind]:
    """So many kinds, each as often as its weight says (largest remainders): counts of a table stay the counts."""
    total = sum(weights.values())
    shares = {kind: weight / total * size for kind, weight in weights.items()}
    counts = {kind: math.floor(share + 1e-9) for kind, share in shares.items()}
    by_rest = sorted(shares, key=lambda kind: counts[kind] - shares[kind])
    for kind in by_rest[: size - sum(counts.values())]:
        counts[kind] += 1
    return [kind for kind, number in counts.items() for _ in range(number)]


def _pick(weights: Mapping[Kind, float], share: float) -> Kind:
    kinds = list(weights)
    sums = list(accumulate(weights.values()))
    return kinds[min(bisect(sums, share * sums[-1]), len(kinds) - 1)]
