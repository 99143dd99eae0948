"""One network for all nodes of a run: each may call its interface otherwise. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm.node.choose import Choice
from slurm.node.links import ASSUMED, Candidate
from slurm.node.machine import Network


@dataclass(frozen=True, kw_only=True)
class Way:
    """How one node reaches the common network."""

    interface: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """`network` is None where the nodes have none in common: then each goes its own way and routers must connect them.

    `missing` names the nodes without an address in a network that most of the others have; `rivals` are networks that
    the advertised rates cannot tell from the one agreed on: a probe between two nodes decides.
    """

    network: Network | None
    ways: Mapping[str, Way] = field(default_factory=dict)
    reason: str = ""
    missing: tuple[str, ...] = ()
    rivals: tuple[Network, ...] = ()


def agree(nodes: Mapping[str, Choice]) -> Agreement:
    """The fastest network that every node is on; as fast as its slowest node there."""
    lost = sorted(name for name, choice in nodes.items() if not choice.usable)
    if lost or not nodes:
        why = f"no usable interface on {', '.join(lost)}" if lost else "no nodes"
        return Agreement(network=None, reason=why, missing=tuple(lost))
    on = {network: _members(network, nodes) for network in _networks(nodes)}
    common = [network for network, members in on.items() if len(members) == len(nodes)]
    if not common:
        return _apart(nodes, on)
    ranked = sorted(common, key=lambda network: _order(network, on[network]))
    best = ranked[0]
    # Two networks over the same interfaces are no rivals: a probe would compare a cable with itself.
    rivals = tuple(
        other
        for other in ranked[1:]
        if _alike(on[other], on[best])
        and any(on[other][name].under != way.under for name, way in on[best].items())
    )
    text = f"{best}: all {len(nodes)} nodes are on it, the slowest at {_slowest(on[best]) / 1000:g} Gb/s"
    if rivals:
        text += f"; as fast as {', '.join(str(other) for other in rivals)}: a probe between two nodes decides"
    return Agreement(network=best, ways=_ways(best, on[best]), reason=text, rivals=rivals)


def _networks(nodes: Mapping[str, Choice]) -> list[Network]:
    """Those with more than one address; a network inside another one that is there too is a wrong prefix length."""
    found = {
        ip.network
        for choice in nodes.values()
        for item in choice.usable
        for ip in item.addresses
        if ip.network.num_addresses > 1
    }
    return [
        network
        for network in sorted(
            found, key=lambda item: (item.version, int(item.network_address), item.prefixlen)
        )
        if not any(other != network and _inside(network, other) for other in found)
    ]


def _inside(network: Network, other: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


def _members(network: Network, nodes: Mapping[str, Choice]) -> dict[str, Candidate]:
    """The best interface of each node that is on this network."""
    found = {}
    for name, choice in nodes.items():
        item = next((item for item in choice.usable if any(ip.ip in network for ip in item.addresses)), None)
        if item is not None:
            found[name] = item
    return found


def _slowest(members: Mapping[str, Candidate]) -> int:
    return min(item.rate or ASSUMED for item in members.values())


def _weight(members: Mapping[str, Candidate]) -> tuple[int, int]:
    return max(item.tier for item in members.values()), -_slowest(members)


def _alike(one: Mapping[str, Candidate], other: Mapping[str, Candidate]) -> bool:
    """Whether the advertised rates do not tell one from the other: the same, or some unknown."""
    known = all(item.rate for members in (one, other) for item in members.values())
    (tier, rate), (its_tier, its_rate) = _weight(one), _weight(other)
    return tier == its_tier and (rate == its_rate or not known)


def _order(network: Network, members: Mapping[str, Candidate]) -> tuple[object, ...]:
    """By rate; then where most nodes have their default route; then IPv4 first and by number."""
    routed = sum(item.default for item in members.values())
    return (*_weight(members), -routed, network.version, int(network.network_address))


def _ways(network: Network, members: Mapping[str, Candidate]) -> dict[str, Way]:
    return {
        name: Way(interface=item.name, address=next(str(ip.ip) for ip in item.addresses if ip.ip in network))
        for name, item in members.items()
    }


def _apart(nodes: Mapping[str, Choice], on: Mapping[Network, Mapping[str, Candidate]]) -> Agreement:
    """No common network. One that more than half have accuses the rest; else routers connect them, or nothing does."""
    ways = {
        name: Way(interface=c.usable[0].name, address=str(c.usable[0].address.ip))
        for name, c in nodes.items()
    }
    most = max(on, key=lambda network: len(on[network]), default=None)
    missing: Sequence[str] = ()
    if most is not None and len(on[most]) * 2 > len(nodes):
        missing = sorted(nodes.keys() - on[most].keys())
    if most is not None and missing:
        text = f"no common network: {_named(missing)} no address in {most}, which the other {len(on[most])} nodes have"
    else:
        text = "no common network: each node goes its own way, and routers must connect them"
    return Agreement(network=None, ways=ways, reason=text, missing=tuple(missing))


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{', '.join(listed)} {'has' if len(listed) == 1 else 'have'}"
