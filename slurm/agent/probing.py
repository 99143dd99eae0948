"""Agent 0 measures the networks that the advertised rates do not tell apart, to other members' sinks, in a thread."""

import ipaddress
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from slurm.agent.network import Link
from slurm.node.machine import Network
from slurm.node.probe import Measured, throughput

_PARTNERS = 2  # a single one could be the node whose own link is slow


class Probing:
    """Of these networks, what each carries: the least to any partner. `results` None while it is not known yet."""

    def __init__(
        self, link: Link, networks: Sequence[Network], others: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """`others`: what the other members say in their beats."""
        self.networks = tuple(networks)
        self.results: dict[Network, Measured] | None = None
        self._ways = {network: _ways(link, network, others) for network in networks}
        # It ends by itself within its time limits; nobody waits for it at an exit.
        threading.Thread(target=self._measure, name="network probe", daemon=True).start()

    def _measure(self) -> None:
        found = {}
        for network, ways in self._ways.items():
            each = [throughput(local, remote, port) for local, remote, port in ways]
            nothing = Measured(bits_per_s=0.0, problem="no sink there")
            found[network] = min(each, key=lambda item: item.bits_per_s, default=nothing)
        self.results = found


def _ways(
    link: Link, network: Network, others: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str, int]]:
    """(our address, theirs, their port) in this network, for a few of the others."""
    mine = next((str(ip.ip) for item in link.usable for ip in item.addresses if ip.ip in network), None)
    theirs = [
        (address, port)
        for its in others.values()
        for item in its.values()
        for address, port in item.get("sinks", {}).items()
        if ipaddress.ip_address(address) in network
    ]
    return [(mine, address, port) for address, port in theirs[:_PARTNERS]] if mine else []
