"""One network for all members: what each publishes in its beat, what agent 0 makes of it, what each does then."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm.agent.network import Link
from slurm.node.addresses import read_addresses
from slurm.node.agree import Agreement, agree
from slurm.node.choose import Choice, choose
from slurm.node.links import Candidate, Tier
from slurm.node.machine import Network
from slurm.node.sysfs import read_machine

_PUBLISHED = 6  # a beat is small, and the best come first
_RIVALS = 3


def facts(link: Link, sinks: Mapping[str, int]) -> dict[str, Any]:
    """For the beat: what this node could take, and the ports (by address) at which it takes a probe's bytes."""
    if not link.usable:
        return {}
    return {
        item.name: {
            "addresses": [str(ip) for ip in item.addresses],
            "tier": int(item.tier),
            "rate": item.rate,
            "default": item.default,
            "under": sorted(item.under),
            "sinks": {str(ip.ip): sinks[str(ip.ip)] for ip in item.addresses if str(ip.ip) in sinks},
        }
        for item in link.usable[:_PUBLISHED]
    }


def addresses(link: Link) -> list[str]:
    """Where a probe may want to reach this node: none when there is one network only, and nothing to tell apart."""
    found = [item.addresses[0] for item in link.usable[:_PUBLISHED]]
    return [str(ip.ip) for ip in found] if len({ip.network for ip in found}) > 1 else []


def _choice(published: Mapping[str, Any]) -> Choice:
    usable = []
    for name, its in published.items():
        found = tuple(ipaddress.ip_interface(text) for text in its["addresses"])
        usable.append(
            Candidate(
                name=name,
                address=found[0],
                addresses=found,
                tier=Tier(its["tier"]),
                rate=its["rate"],
                default=its["default"],
                under=frozenset(its["under"]),
            )
        )
    return Choice(usable=tuple(usable))


def agreement(published: Mapping[str, Mapping[str, Any]]) -> Agreement | None:
    """What the members, by what each says in its beat, have in common; None where one of them says nothing."""
    if len(published) < 2 or not all(published.values()):
        return None
    return agree({name: _choice(its) for name, its in published.items()})


def rivals(found: Agreement, link: Link) -> tuple[Network, ...]:
    """The networks that a probe has to tell apart, the one agreed on first; () when there is nothing to tell.

    Where somebody has set the interface, only to say whether another one is faster.
    """
    if found.network is None or not found.rivals:
        return ()
    candidates = (found.network, *found.rivals[:_RIVALS])
    return candidates if not link.fixed or network_of(link, candidates) is not None else ()


def network_of(link: Link, candidates: Sequence[Network]) -> Network | None:
    """The one of these that the link is in."""
    here = ipaddress.ip_address(link.address)
    return next((network for network in candidates if here in network), None)


def over(link: Link, network: Network) -> Link:
    """This node's way into a network that it is on. What somebody has set on this node is obeyed."""
    if link.fixed:
        return link
    for item in link.usable:
        mine = next((ip for ip in item.addresses if ip.ip in network), None)
        if mine is not None:
            return _over(link, item.name, str(mine.ip))
    return link


def towards(link: Link, master: str) -> tuple[Link, str]:
    """This node's way to the master: over its interface in the same network. The sentence is "" when nothing is odd."""
    if not link.usable or master == link.address:
        return link, ""
    there = ipaddress.ip_address(master)
    for item in link.usable:
        mine = next((ip for ip in item.addresses if there in ip.network), None)
        if mine is not None and (not link.fixed or item.name == link.interface):
            return _over(link, item.name, str(mine.ip)), ""
    why = f"{link.interface} is set" if link.fixed else "no interface here"
    return link, f"network: {why}, and has no address in the network of {master}; routers must connect them"


def _over(link: Link, interface: str, address: str) -> Link:
    if link.fixed or interface == link.interface:
        return replace(link, address=address)
    return replace(link, interface=interface, address=address, nccl=f"={interface}")


def gone(link: Link, sysfs: Path = Path("/sys")) -> str:
    """Why the interface that was chosen cannot be used any more, "" when it can or nothing is known."""
    if not link.usable:
        return ""
    try:
        now = choose(read_machine(sysfs, read_addresses(sysfs)))
    except OSError:
        return ""
    if link.fixed or any(item.name == link.interface for item in now.usable):
        return ""
    why = next((item.why for item in now.rejected if item.name == link.interface), "it is not there any more")
    return f"network: {link.interface} ({link.address}) was usable when it was chosen and is not now: {why}"
