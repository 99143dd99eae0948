"""Which interfaces can carry the sockets of a run, in order of preference. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from slurm.node.hcas import HcaChoice, Rejected
from slurm.node.machine import Interface, Ip, Kind, Machine, PortState, natural

# What NCCL reckons with when a driver does not tell (10 Gb/s).
ASSUMED = 10_000

# Made by container engines, hypervisors and overlay networks for their guests.
_GUESTS = re.compile(
    r"(docker|podman|nerdctl|veth|virbr|vnet|vmnet|vboxnet|lxc|lxd|incus|cni|cbr|flannel|cali|cilium|kube|nodelocaldns"
    r"|weave|antrea|ovn|genev|vxlan|tailscale|zt|wg|tun|tap|dummy|ifb|sit|gre|ip6|ovs-)|br-[0-9a-f]{12}$"
)
_CARRIERS = {Kind.BOND, Kind.VLAN, Kind.BRIDGE}
_OWN = {Kind.ETHERNET, Kind.IPOIB, Kind.UNKNOWN}


class Tier(IntEnum):
    """A later tier is used only when no earlier one has anything."""

    DATA = 0
    RELUCTANT = 1  # it works, and something speaks against it
    WLAN = 2
    USB = 3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A usable interface. `rate` in Mb/s, None unknown; `against`: why it is not in the first tier."""

    name: str
    address: Ip
    addresses: tuple[Ip, ...]
    tier: Tier
    rate: int | None
    default: bool
    under: frozenset[str]
    against: str = ""
    near_default: bool = False
    on_taken_hca: bool = False
    virtual_function: bool = False

    @property
    def weight(self) -> tuple[int, int]:
        """What decides; all that comes after it is only there to be deterministic."""
        return self.tier, -(self.rate or ASSUMED)

    @property
    def order(self) -> tuple[object, ...]:
        return (
            *self.weight,
            not self.default,
            not self.near_default,
            not self.on_taken_hca,
            self.virtual_function,
            natural(self.name),
        )


def candidates(machine: Machine, hcas: HcaChoice) -> tuple[list[Candidate], list[Rejected]]:
    """The usable interfaces, best first, and the others with the reason."""
    usable: list[Candidate] = []
    rejected: list[Rejected] = []
    for link in machine.interfaces:
        why = why_not(machine, link)
        if why:
            rejected.append(Rejected(name=link.name, why=why))
        else:
            usable.append(_candidate(machine, link, hcas))
    return sorted(usable, key=lambda item: item.order), rejected


def why_not(machine: Machine, link: Interface) -> str:
    """Why this interface cannot be used, "" when it can."""
    return (
        _wrong_kind(machine, link)
        or _leg_of(machine, link)
        or link.down
        or _nothing_alive(machine, link)
        or ("" if link.addresses else "no usable address")
        or _last_resort_only(machine, link)
    )


def _wrong_kind(machine: Machine, link: Interface) -> str:
    own = bool(owned(machine, link))
    match link.kind:
        case Kind.LOOPBACK:
            return "loopback"
        case Kind.TUNNEL:
            return "tunnel"
        case Kind.VRF:
            return "routing domain, not a network"
        case Kind.BRIDGE if not own and (link.lower or _GUESTS.match(link.name)):
            return "bridge of containers or guests: no network card is its port"
        case _:
            pass
    is_card = (own and link.kind is not Kind.UNKNOWN) or link.kind in {Kind.WLAN, Kind.USB}
    if not is_card and _GUESTS.match(link.name):
        return "of containers, guests or an overlay network"
    return "represents a virtual function or a switch port" if link.representor else ""


def owned(machine: Machine, link: Interface) -> list[Interface]:
    """The network cards of this machine at the bottom of the interface."""
    bottom = [machine.interface(name) for name in machine.under(link.name) | _ports_of_switch(machine, link)]
    return [item for item in bottom if item is not None and _is_card(item)]


def _is_card(item: Interface) -> bool:
    """Also a VLAN or a bond whose lower interfaces are in another namespace, or were not recorded."""
    return item.kind in _OWN or item.kind is Kind.VLAN or bool(item.bond and item.bond.slaves)


def _ports_of_switch(machine: Machine, link: Interface) -> frozenset[str]:
    """Open vSwitch does not tell which ports belong to the interface that carries the address: all of them may."""
    if (
        link.kind not in {Kind.VIRTUAL, Kind.BRIDGE, Kind.UNKNOWN}
        or link.name != machine.default_route
        or link.lower
    ):
        return frozenset()
    ports = [item.name for item in machine.interfaces if item.master == "ovs-system"]
    return frozenset().union(*(machine.under(name) for name in ports))


def _leg_of(machine: Machine, link: Interface) -> str:
    if not link.master:
        return ""
    master = machine.interface(link.master)
    kind = master.kind if master else Kind.UNKNOWN
    if kind is Kind.VRF:
        return ""
    return f"{'leg' if kind is Kind.BOND else 'port'} of {link.master}"


def _nothing_alive(machine: Machine, link: Interface) -> str:
    """A driver that says up above hardware that is not."""
    known = machine.hca_port(link)
    if link.kind is Kind.IPOIB and known and known[1].state not in {PortState.ACTIVE, PortState.UNKNOWN}:
        return f"its port {known[0].name}:{known[1].number} is {known[1].state}"
    if link.kind in _CARRIERS and link.lower:
        below = [item for name in link.lower if (item := machine.interface(name))]
        if below and all(item.down for item in below):
            return f"all that is under it is down: {', '.join(item.name for item in below)}"
    return ""


def _last_resort_only(machine: Machine, link: Interface) -> str:
    if link.kind is Kind.USB and link.name != machine.default_route:
        return "USB: a service processor's or a gadget's, and no default route"
    if owned(machine, link) or link.kind in {Kind.WLAN, Kind.USB}:
        return ""
    cards = [item for item in machine.interfaces if item.kind in _OWN]
    # In a container all there is can be one end of a pair; on a machine with cards it leads nowhere.
    return "virtual, with no network card under it" if cards and link.name != machine.default_route else ""


def _candidate(machine: Machine, link: Interface, hcas: HcaChoice) -> Candidate:
    against = _against(machine, link, hcas)
    tier = {Kind.WLAN: Tier.WLAN, Kind.USB: Tier.USB}.get(link.kind, Tier.RELUCTANT if against else Tier.DATA)
    port = machine.hca_port(link)
    way_out = machine.interface(machine.default_route)
    networks = [ip.network for ip in way_out.addresses] if way_out else []
    return Candidate(
        name=link.name,
        address=link.addresses[0],
        addresses=link.addresses,
        tier=tier,
        rate=rate_of(machine, link),
        default=link.name == machine.default_route,
        under=machine.under(link.name),
        against=against,
        near_default=any(ip.network in networks for ip in link.addresses),
        on_taken_hca=port is not None and any(port[0] is hca for hca, _ in hcas.taken),
        virtual_function=bool(link.place.parent_function) or link.subfunction,
    )


def _against(machine: Machine, link: Interface, hcas: HcaChoice) -> str:
    """The first thing that speaks against an interface that works, "" when nothing does."""
    port = machine.hca_port(link)
    domain = machine.interface(link.master)
    far = bool(port and hcas.taken and port[0].name in hcas.distant and link.name != machine.default_route)
    active = link.bond.active if link.bond else ""
    reasons = {
        "wireless": link.kind is Kind.WLAN,
        "USB": link.kind is Kind.USB,
        "virtual": not owned(machine, link),
        f"its active leg {active} is down": _is_down(machine, active),
        f"in the routing domain {link.master}": bool(domain and domain.kind is Kind.VRF),
        "named for storage": "stor" in link.name.lower(),
        f"on {port[0].name if port else ''}, which is not beside the GPUs: storage": far,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_down(machine: Machine, name: str) -> bool:
    item = machine.interface(name)
    return item is not None and bool(item.down)


def rate_of(machine: Machine, link: Interface) -> int | None:
    """Mb/s: as InfiniBand's port or the driver says, else from what is underneath; None unknown."""
    return _rate(machine, link, frozenset())


def _rate(machine: Machine, link: Interface, seen: frozenset[str]) -> int | None:
    known = machine.hca_port(link)
    if link.kind is Kind.IPOIB and known and known[1].rate:
        return known[1].rate * 1000  # newer than what the driver of the interface may know
    if link.speed:
        return link.speed
    names = [name for name in (link.lower or sorted(_ports_of_switch(machine, link))) if name not in seen]
    below = [item for name in names if (item := machine.interface(name)) and not item.down]
    rates = {item.name: rate for item in below if (rate := _rate(machine, item, seen | {link.name}))}
    if not rates:
        return known[1].rate * 1000 or None if known else None
    if link.bond is None:
        return max(rates.values())
    if link.bond.active:
        return rates.get(link.bond.active)
    return sum(rates.values()) if link.bond.mode != "active-backup" else max(rates.values())


def equals(best: Candidate, others: Sequence[Candidate]) -> list[Candidate]:
    """Those that the advertised rates cannot tell from the best: as fast, or of unknown rate. Other cables only."""
    return [
        other
        for other in others
        if other.tier == best.tier
        and other.under != best.under
        and (other.rate is None or best.rate is None or other.rate == best.rate)
    ]
