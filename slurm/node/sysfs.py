"""Read a node's interfaces, HCAs and GPUs from sysfs, or from a recorded copy of it. Touches files below its root only."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from slurm.node.addresses import Addresses
from slurm.node.machine import (
    Bond,
    Hca,
    Interface,
    Kind,
    Layer,
    Machine,
    Port,
    PortState,
    Verbs,
    natural,
)
from slurm.node.tree import Tree, first_number, link_text, listed, path_of, raw, read, target, uevent

_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf|hpf)")
_TYPE_ETHERNET, _TYPE_INFINIBAND, _TYPE_LOOPBACK = 1, 32, 772
_FLAG_UP = 0x1
_AMAZON = "0x1d0f"
_TUNNELS = {"vxlan", "geneve", "wireguard", "gretap", "ip6gretap", "erspan", "bareudp", "ppp", "wwan", "tun"}
_DEVTYPES = {
    "bond": Kind.BOND,
    "vlan": Kind.VLAN,
    "macvlan": Kind.VLAN,
    "macvtap": Kind.VLAN,
    "ipvlan": Kind.VLAN,
    "ipvtap": Kind.VLAN,
    "bridge": Kind.BRIDGE,
    "wlan": Kind.WLAN,
    "vrf": Kind.VRF,
    "veth": Kind.VIRTUAL,
    **dict.fromkeys(_TUNNELS, Kind.TUNNEL),
}
_USB_DRIVERS = {"cdc_ether", "rndis_host", "cdc_ncm", "cdc_eem", "cdc_subset"}
_USB_NAMES = re.compile(r"usb\d|enx[0-9a-f]{12}|idrac|bmc")
_NODE_TYPES = {"CA": Verbs.CA, "RNIC": Verbs.IWARP, "usNIC": Verbs.USNIC, "usNIC UDP": Verbs.USNIC}


def read_machine(root: Path, addresses: Addresses) -> Machine:
    """The node below this root, which is sysfs itself or a directory that holds it as `sys`.

    Raises:
        FileNotFoundError: there is no sysfs below the root.
    """
    tree = Tree.at(root)
    links = [_interface(tree, name, addresses) for name in tree.entries("class/net")]
    return Machine(
        host=addresses.host,
        interfaces=tuple(_completed(links)),
        hcas=tuple(_hca(tree, name) for name in tree.entries("class/infiniband")),
        gpus=tuple(tree.gpus()),
        default_route=addresses.default_route,
    )


# -- interfaces ---------------------------------------------------------------------------------------------


def _interface(tree: Tree, name: str, addresses: Addresses) -> Interface:
    entry = tree.base / "class/net" / name
    device = os.path.realpath(entry / "device")
    bond = _bond(entry)
    return Interface(
        name=name,
        kind=_kind(entry, bond),
        down=_down(entry),
        speed=_speed(entry),
        master=target(entry / "master") or target(entry / "brport/bridge"),
        lower=tuple(_lower(entry, bond)),
        place=tree.place(entry),
        port=1 + max(first_number([entry / "dev_port"], 0), first_number([entry / "dev_id"], 0)),
        index=first_number([entry / "ifindex"]),
        linked=first_number([entry / "iflink"]),
        subfunction=".sf." in Path(device).name,
        representor=bool(_REPRESENTOR.match(read(entry / "phys_port_name") or "")),
        bond=bond,
        addresses=addresses.of(name),
    )


def _kind(entry: Path, bond: Bond | None) -> Kind:
    number = first_number([entry / "type"], _TYPE_ETHERNET)
    tests = (
        (Kind.LOOPBACK, number == _TYPE_LOOPBACK or entry.name == "lo"),
        (Kind.BOND, bond is not None),
        (Kind.BRIDGE, (entry / "bridge").is_dir() or (entry / "brif").is_dir()),
        (Kind.IPOIB, number == _TYPE_INFINIBAND),
        (
            Kind.WLAN,
            any((entry / name).exists() or (entry / name).is_symlink() for name in ("wireless", "phy80211")),
        ),
    )
    found = next((kind for kind, holds in tests if holds), None) or _DEVTYPES.get(uevent(entry, "DEVTYPE"))
    if found is None and ((entry / "tun_flags").exists() or number != _TYPE_ETHERNET):
        return Kind.TUNNEL
    return found or _kind_by_place(entry)


def _kind_by_place(entry: Path) -> Kind:
    """What has no name for itself: by the bus it hangs on, or by what it is linked to."""
    places = (
        os.path.realpath(entry),
        link_text(entry),
        os.path.realpath(entry / "device"),
        link_text(entry / "device"),
    )
    driver = target(entry / "device/driver") or uevent(entry / "device", "DRIVER")
    on_usb = any(re.search(r"/usb\d+(/|$)", place) for place in places)
    if not any(map(path_of, places)) and not uevent(entry / "device", "PCI_SLOT_NAME"):
        on_usb = on_usb or bool(
            _USB_NAMES.match(entry.name)
        )  # recorded without its bus: its name is all there is
    if on_usb or driver in _USB_DRIVERS or uevent(entry / "device", "DEVTYPE") == "usb_interface":
        return Kind.USB
    if any("/devices/virtual/" in place for place in places) or _elsewhere(entry):
        return Kind.VLAN if re.search(r"(\.|^vlan)\d+$", entry.name) else Kind.VIRTUAL
    return Kind.ETHERNET if (entry / "device").is_dir() or (entry / "device").is_symlink() else Kind.UNKNOWN


def _elsewhere(entry: Path) -> bool:
    """Linked to an interface of another number: a VLAN, or one end of a pair."""
    own, linked = first_number([entry / "ifindex"]), first_number([entry / "iflink"])
    return min(own, linked) > 0 and own != linked and not (entry / "device").exists()


def _bond(entry: Path) -> Bond | None:
    where = entry / "bonding"
    if not where.is_dir():
        return None
    mode = (read(where / "mode") or "").split()
    slaves = (read(where / "slaves") or "").split()
    return Bond(mode=mode[0] if mode else "", slaves=tuple(slaves), active=read(where / "active_slave") or "")


def _lower(entry: Path, bond: Bond | None) -> Iterable[str]:
    """The interfaces that this one itself names as being underneath."""
    found = set(bond.slaves) if bond else set()
    found |= {item.name for item in listed(entry / "brif")}
    found |= {item.name.removeprefix("lower_") for item in listed(entry) if item.name.startswith("lower_")}
    return sorted(found - {entry.name}, key=natural)


def _completed(links: Sequence[Interface]) -> Iterator[Interface]:
    """What one interface does not tell, others do: who its master is, what it stands on."""
    names = {link.name for link in links}
    masters = {
        leg: link.name for link in links if link.kind in {Kind.BOND, Kind.BRIDGE} for leg in link.lower
    }
    links = [replace(link, master=link.master or masters.get(link.name, "")) for link in links]
    for link in links:
        below = {name for name in link.lower if name in names}
        below |= {other.name for other in links if other.master == link.name}
        if not below and link.kind in {Kind.VLAN, Kind.IPOIB}:
            stem = link.name.rpartition(".")[0]
            below = {stem} if stem in names else {
                other.name for other in links if other.index == link.linked > 0 and other.name != link.name
            }  # fmt: skip
        yield replace(link, lower=tuple(sorted(below, key=natural)))


def _down(entry: Path) -> str:
    flags = first_number([entry / "flags"])
    if flags >= 0 and not flags & _FLAG_UP:
        return "switched off"
    state, carrier = read(entry / "operstate") or "", raw(entry / "carrier")
    if state not in {"up", "unknown", ""}:
        return state
    # The kernel answers EINVAL for the carrier of an interface that is switched off.
    if carrier == "0" or (carrier == "" and state != "up"):
        return "no carrier"
    if carrier is None and not state and flags < 0:
        return "its state cannot be read"
    return ""


def _speed(entry: Path) -> int | None:
    value = first_number([entry / "speed"])
    return value if 0 < value < 2**31 else None  # unknown is -1, and 4294967295 where it was printed unsigned


# -- HCAs ----------------------------------------------------------------------------------------------------


def _hca(tree: Tree, name: str) -> Hca:
    entry = tree.base / "class/infiniband" / name
    ports = sorted((item.name for item in listed(entry / "ports") if item.name.isdecimal()), key=int)
    return Hca(
        name=name,
        verbs=_verbs(entry),
        place=tree.place(entry),
        ports=tuple(_port(entry / "ports" / number) for number in ports),
        netdevs=tuple(item.name for item in listed(entry / "device/net")),
        subfunction=".sf." in Path(os.path.realpath(entry / "device")).name,
    )


def _verbs(entry: Path) -> Verbs:
    driver = target(entry / "device/driver") or uevent(entry / "device", "DRIVER")
    if driver == "efa" or read(entry / "device/vendor") == _AMAZON or entry.name.startswith("efa"):
        return Verbs.EFA
    # rxe and siw say whose packets they send; a card has a device instead.
    virtual = "/devices/virtual/" in os.path.realpath(entry) or "/devices/virtual/" in link_text(entry)
    if virtual or (entry / "parent").is_file() or re.match(r"(rxe|siw)", entry.name):
        return Verbs.SOFTWARE
    kind = (read(entry / "node_type") or "1: CA").partition(":")[2].strip()
    return _NODE_TYPES.get(kind, Verbs.UNKNOWN)


def _port(where: Path) -> Port:
    state = (read(where / "state") or "").rpartition(":")[2].strip().upper()
    layer = read(where / "link_layer") or ""
    rate = re.match(r"[\d.]+", read(where / "rate") or "")
    names = [read(item) for item in listed(where / "gid_attrs/ndevs")]
    return Port(
        number=int(where.name),
        state=PortState(state) if state in set(PortState) else PortState.UNKNOWN,
        layer=Layer(layer) if layer in set(Layer) else Layer.UNKNOWN,
        rate=int(float(rate.group())) if rate else 0,
        netdevs=tuple(dict.fromkeys(name for name in names if name)),
    )
