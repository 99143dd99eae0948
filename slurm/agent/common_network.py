"""One network for all members: what each publishes in its beat, what agent 0 makes of it, what each does then."""

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm.agent.network import Link
from slurm.node.addresses import read_addresses
from slurm.node.agree import agree
from slurm.node.choose import Choice, choose
from slurm.node.links import Candidate, Tier
from slurm.node.sysfs import read_machine

_PUBLISHED = 6  # a beat is small, and the best come first


def facts(link: Link) -> dict[str, Any]:
    """For the beat: what this node could take. Empty where there is nothing to choose."""
    if link.fixed or not link.usable:
        return {}
    return {
        item.name: {
            "addresses": [str(ip) for ip in item.addresses],
            "tier": int(item.tier),
            "rate": item.rate,
            "default": item.default,
            "under": sorted(item.under),
        }
        for item in link.usable[:_PUBLISHED]
    }


def _choice(published: Mapping[str, Any]) -> Choice:
    usable = []
    for name, its in published.items():
        addresses = tuple(ipaddress.ip_interface(text) for text in its["addresses"])
        usable.append(
            Candidate(
                name=name,
                address=addresses[0],
                addresses=addresses,
                tier=Tier(its["tier"]),
                rate=its["rate"],
                default=its["default"],
                under=frozenset(its["under"]),
            )
        )
    return Choice(usable=tuple(usable))


def agreed(link: Link, node: str, published: Mapping[str, Mapping[str, Any]]) -> tuple[Link, str]:
    """Agent 0's way into the network that all members have in common, and the sentence about it.

    `published`: what each member says in its beat. What somebody has set on this node is obeyed.
    """
    if link.fixed or not link.usable or not all(published.values()):
        return link, ""
    found = agree({name: _choice(its) for name, its in published.items()})
    if found.network is None:
        return link, found.reason
    way = found.ways[node]
    return _over(link, way.interface, way.address), found.reason


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
