"""What one node shows of its network and its GPUs: plain values. `sysfs` and `addresses` fill them, `choose` judges."""

import ipaddress
from dataclasses import dataclass
from enum import StrEnum

Ip = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Kind(StrEnum):
    """What an interface is made of."""

    ETHERNET = "ethernet"
    IPOIB = "ipoib"
    BOND = "bond"
    VLAN = "vlan"
    BRIDGE = "bridge"
    LOOPBACK = "loopback"
    WLAN = "wlan"
    USB = "usb"
    TUNNEL = "tunnel"
    VRF = "vrf"
    VIRTUAL = (
        "virtual"  # nothing of this machine's underneath: a container's end, a dummy, a switch in software
    )
    UNKNOWN = "unknown"  # recorded without its device: perhaps a card


class Layer(StrEnum):
    """Link layer of an HCA's port."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"
    UNKNOWN = "Unknown"


class PortState(StrEnum):
    """Of an HCA's port. UNKNOWN: what we could not read, or a word that we do not know."""

    DOWN = "DOWN"
    INIT = "INIT"
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    UNKNOWN = "UNKNOWN"


class Verbs(StrEnum):
    """What kind of RDMA a device does; NCCL's InfiniBand transport speaks CA only (InfiniBand and RoCE)."""

    CA = "CA"
    IWARP = "iWARP"
    EFA = "EFA"
    USNIC = "usNIC"
    SOFTWARE = "software"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a device sits. `path` runs from the root complex to the device; empty when the tree does not tell."""

    path: tuple[str, ...] = ()
    numa: int = -1
    parent_function: str = ""  # the physical function of a virtual one

    @property
    def function(self) -> str:
        """The PCI function (0000:18:00.0), "" for what is not on PCI."""
        return self.path[-1] if self.path else ""

    @property
    def card(self) -> str:
        """The PCI device without its function: the ports of one card often have it in common."""
        return self.function.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Bond:
    mode: str
    slaves: tuple[str, ...]
    active: str


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One network interface. `speed` in Mb/s as the driver advertises it, None when it does not."""

    name: str
    kind: Kind
    down: str = ""  # why it does not run, "" when it does
    speed: int | None = None
    master: str = ""
    lower: tuple[str, ...] = ()
    place: Place = Place()
    port: int = 1  # of its card
    index: int = -1
    linked: int = -1  # index of what it stands on, perhaps in another namespace
    subfunction: bool = False
    representor: bool = False
    bond: Bond | None = None
    addresses: tuple[Ip, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Port:
    number: int
    state: PortState
    layer: Layer
    rate: int  # Gb/s, 0 unknown
    netdevs: tuple[str, ...] = ()  # of its GID table


@dataclass(frozen=True, kw_only=True)
class Hca:
    name: str
    verbs: Verbs
    place: Place = Place()
    ports: tuple[Port, ...] = ()
    netdevs: tuple[str, ...] = ()  # of the same PCI function
    subfunction: bool = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node at one moment. `gpus` are places only: what matters is what is near them."""

    host: str
    interfaces: tuple[Interface, ...] = ()
    hcas: tuple[Hca, ...] = ()
    gpus: tuple[Place, ...] = ()
    default_route: str = ""  # interface, of IPv4 if there is one

    def interface(self, name: str) -> Interface | None:
        return next((item for item in self.interfaces if item.name == name), None)

    def under(self, name: str) -> frozenset[str]:
        """The interfaces at the bottom of this one: its legs, its bridge's ports, or itself."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            top = waiting.pop()
            item = self.interface(top)
            if top in seen or item is None:
                continue
            seen.add(top)
            if item.lower:
                waiting += item.lower
            else:
                found.add(top)
        return frozenset(found)

    def hca_port(self, interface: Interface) -> tuple[Hca, Port] | None:
        """The HCA and port that this interface's packets leave through."""
        for hca in self.hcas:
            for port in hca.ports:
                if interface.name in port.netdevs:
                    return hca, port
        for hca in self.hcas:
            mine = hca.place.function and hca.place.function == interface.place.function
            if interface.name not in hca.netdevs and not (mine and hca.subfunction == interface.subfunction):
                continue
            for port in hca.ports:
                if len(hca.ports) == 1 or port.number == interface.port:
                    return hca, port
        return None


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    parts: list[tuple[int, int, str]] = []
    digits = text = ""
    for letter in [*name, ""]:
        if letter.isdecimal():
            if text:
                parts.append((1, 0, text))
                text = ""
            digits += letter
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        text += letter
    if text:
        parts.append((1, 0, text))
    return tuple(parts)
