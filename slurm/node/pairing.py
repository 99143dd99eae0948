"""Which node is slow, loses packets or computes wrongly, from what pairs of neighbours in a ring saw. Pure.

Each node is in two pairs. One that is bad spoils both, so that the node between two bad pairs is to blame; a longer run
of bad pairs is explained by as few nodes as possible. A single bad pair blames the way between two nodes.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SLOW = 0.5  # of the best pair's bandwidth
_LOST = 0.005  # share of segments sent again
_LOST_BESIDE = (
    0.1  # of the worst pair's: what a lossy node makes others send again, outside of its own pairs, is less
)
_SLOW_PRODUCT = 2.0  # times the median


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Neighbours `first` and `first + 1` of the ring: the slower side's bandwidth (B/s), the larger loss."""

    first: int
    bytes_per_s: float
    lost: float = 0.0
    differs: bool = False


@dataclass(frozen=True, kw_only=True)
class Findings:
    """`bad`: node → why. `doubtful`: pairs of which it is not known which of the two, or the way between.

    `absent`: sentences about nodes that did not come, for no fault that is known.
    """

    bad: Mapping[str, str] = field(default_factory=dict)
    doubtful: Mapping[tuple[str, str], str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def read(everybody: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Pair], list[float]]:
    """(nodes, pairs, seconds of the product) from what `trainer.measure.pairs` prints."""
    nodes = [str(one["node"]) for one in everybody]
    sides: dict[int, list[Mapping[str, Any]]] = {}
    for one in everybody:
        for seen in one["seen"]:
            sides.setdefault(int(seen["pair"][0]), []).append(seen)
    pairs = [
        Pair(
            first=first,
            bytes_per_s=min(side["bytes_per_s"] for side in both),
            lost=max(side["lost"] for side in both),
            differs=any(side["differs"] for side in both),
        )
        for first, both in sorted(sides.items())
    ]
    return nodes, pairs, [float(one["product_s"]) for one in everybody]


def judge(nodes: Sequence[str], pairs: Sequence[Pair], products: Sequence[float]) -> Findings:
    """Who is to blame. Each kind of trouble by itself: a lossy node's slow pairs do not hide a wrong one's."""
    bad: dict[str, str] = {}
    doubtful: dict[tuple[str, str], str] = {}
    median = statistics.median(products)
    for node, seconds in zip(nodes, products, strict=True):
        if len(nodes) > 2 and seconds > _SLOW_PRODUCT * median:
            _add(bad, node, f"its matrix product takes {seconds / median:.1f} times as long as the others'")
    best = max(pair.bytes_per_s for pair in pairs)
    worst = max(pair.lost for pair in pairs)
    lossy = {pair.first for pair in pairs if pair.lost > max(_LOST, _LOST_BESIDE * worst)}
    kinds = (
        (
            {pair.first for pair in pairs if pair.differs},
            "computes or receives something else than its neighbours",
        ),
        (lossy, "loses packets"),
        (
            {pair.first for pair in pairs if pair.bytes_per_s < _SLOW * best} - lossy,
            f"is slow: less than half of the {best / 1e6:.0f} MB/s of the best pair",
        ),
    )
    for edges, what in kinds:
        names, unclear = blamed(edges, len(nodes))
        for number in names:
            _add(bad, nodes[number], what)
        for one, other in unclear:
            doubtful[nodes[one], nodes[other]] = what
    return Findings(bad=bad, doubtful=doubtful)


def judge_missing(nodes: Sequence[str], missing: Sequence[int], heard: Collection[str]) -> Findings:
    """Whose network it is when some did not reach the first node; `heard`: those that certainly tried to."""
    names = [nodes[rank] for rank in missing]
    tried = [node for node in names if node in heard]
    absent = tuple(f"{node} did not come, and may not have heard" for node in names if node not in heard)
    if len(tried) == len(nodes) - 1 > 1:  # not one of them: then it is the first
        return Findings(bad={nodes[0]: "is reached by no other node"}, absent=absent)
    return Findings(bad=dict.fromkeys(tried, f"does not reach {nodes[0]}"), absent=absent)


def _add(bad: dict[str, str], node: str, what: str) -> None:
    bad[node] = f"{bad[node]}; {what}" if node in bad else what


def blamed(edges: set[int], world: int) -> tuple[list[int], list[tuple[int, int]]]:
    """(nodes, pairs that stay unclear) for these bad pairs of a ring; a pair's number is that of its first node."""
    whole = world == 2 or len(edges) == world
    if whole:
        return [], [(edge, (edge + 1) % world) for edge in sorted(edges)]
    names: list[int] = []
    unclear: list[tuple[int, int]] = []
    for start in sorted(edge for edge in edges if (edge - 1) % world not in edges):
        length = next(count for count in range(1, world + 1) if (start + count) % world not in edges)
        if length == 1:
            unclear.append((start, (start + 1) % world))
        elif length % 2 == 0:
            names += [(start + step) % world for step in range(1, length, 2)]
        else:  # the fewest that explain it are not unique: all inner ones
            names += [(start + step) % world for step in range(1, length)]
    return names, unclear
