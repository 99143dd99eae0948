"""Which HCAs NCCL should use. Pure.

Only active ports; those beside the GPUs where the topology shows any; one link layer; of these the fastest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurm.node.machine import Hca, Kind, Layer, Machine, Port, PortState, Verbs, natural
from slurm.node.nearness import Distance, beside

_WHY_NOT = {
    Verbs.EFA: "EFA: NCCL reaches it through its own plugin, not as an InfiniBand device",
    Verbs.IWARP: "iWARP: NCCL speaks InfiniBand and RoCE only",
    Verbs.USNIC: "usNIC: NCCL speaks InfiniBand and RoCE only",
    Verbs.SOFTWARE: "RDMA in software: not faster than the socket under it",
    Verbs.UNKNOWN: "neither an InfiniBand nor a RoCE device",
}


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """An interface or HCA that was not taken."""

    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HcaChoice:
    """`setting` is the value of NCCL_IB_HCA, None when it is better not set. `distant` names what only was too far."""

    setting: str | None
    taken: tuple[tuple[Hca, Port], ...] = ()
    rejected: tuple[Rejected, ...] = ()
    distant: frozenset[str] = frozenset()
    reason: str = ""
    warnings: tuple[str, ...] = ()


_Ports = list[tuple[Hca, Port]]
_Near = tuple[frozenset[str], Distance]


def choose_hcas(machine: Machine) -> HcaChoice:
    """The HCAs for the GPUs of this machine, with what was left out and why."""
    if not machine.hcas:
        return HcaChoice(setting=None, reason="no HCA here, NCCL uses sockets")
    sieve = _Sieve()
    eligible = [hca for hca in machine.hcas if not sieve.drop(hca, unsuited(machine, hca))]
    ports: _Ports = [(hca, port) for hca in eligible for port in hca.ports]
    near = _beside(machine, eligible)
    awake = sieve.keep(ports, lambda _, port: _inactive(port))
    left = awake if near is None else sieve.keep(awake, lambda hca, _: _far(hca, near))
    distant = {hca.name: port.layer for hca, port in awake if (hca, port) not in left}
    if any(not _for_storage(machine, hca, port) for hca, port in left):
        left = sieve.keep(left, lambda *both: "named for storage" if _for_storage(machine, *both) else "")
    layer = _layer(left)
    left = sieve.keep(left, lambda _, port: "" if port.layer is layer else _mixed(port.layer, layer))
    best = max((port.rate for _, port in left), default=0)
    left = sieve.keep(left, lambda _, port: "" if port.rate == best else _slower(port, best))
    return HcaChoice(
        setting=_setting(left) if left else None,
        taken=tuple(left),
        rejected=sieve.told({hca.name for hca, _ in left}),
        distant=frozenset(name for name, of in distant.items() if of is layer or not left),
        reason=_reason(left, near, best, machine),
        warnings=tuple(_warnings(left, near, ports, awake)),
    )


def unsuited(machine: Machine, hca: Hca) -> str:
    """Why NCCL should never use this device whatever the state of its ports, "" when it may."""
    if hca.verbs is not Verbs.CA:
        return _WHY_NOT[hca.verbs]
    whole = next((other for other in machine.hcas if other.place.function == hca.place.parent_function), None)
    if hca.place.parent_function and whole is not None:
        return f"virtual function of {whole.name}"
    if hca.subfunction:
        return "subfunction of its card"
    if all(port.layer is Layer.UNKNOWN for port in hca.ports):
        return "no port with a known link layer" if hca.ports else "no port"
    bond = _bond_over(machine, hca)
    return f"leg of {bond}" if bond and not _is_bonded_pair(machine, hca, bond) else ""


def _bond_over(machine: Machine, hca: Hca) -> str:
    """The bond that has an interface of this HCA as a leg, "" without one."""
    for link in machine.interfaces:
        # Bonded IPoIB does not concern InfiniBand itself; RoCE takes its addresses from the bond.
        if link.kind not in {Kind.ETHERNET, Kind.UNKNOWN}:
            continue
        same = bool(link.place.function) and link.place.function == hca.place.function
        master = machine.interface(link.master) if same or link.name in hca.netdevs else None
        if master is not None and master.kind is Kind.BOND:
            return master.name
    return ""


def _is_bonded_pair(machine: Machine, hca: Hca, bond: str) -> bool:
    """Whether this HCA stands for the whole bond: the driver shows a bonded pair of one card as one device."""
    if "bond" in hca.name:
        return True
    legs = [link for link in machine.interfaces if link.master == bond]
    others = [other for other in machine.hcas if other is not hca and _bond_over(machine, other) == bond]
    return not others and len({link.place.card for link in legs}) == 1


def _beside(machine: Machine, eligible: Sequence[Hca]) -> _Near | None:
    """By each link layer for itself: an Ethernet card nearer to a GPU says nothing about the InfiniBand beside it."""
    found: dict[Distance, frozenset[str]] = {}
    for layer in (Layer.INFINIBAND, Layer.ETHERNET):
        near = beside(
            machine.gpus, [hca for hca in eligible if any(port.layer is layer for port in hca.ports)]
        )
        if near is not None:
            level = max(near[1], Distance.PXB)  # any switch will do
            found[level] = found.get(level, frozenset()) | near[0]
    if not found:
        return None
    names, level = found[min(found)], min(found)
    active = {hca.name for hca in eligible if any(port.state is PortState.ACTIVE for port in hca.ports)}
    # Under one switch is evidence even while the port is down; less than that is not worth an empty list.
    return None if level > Distance.PXB and not names & active else (names, level)


def _far(hca: Hca, near: _Near) -> str:
    where = "not on a NUMA node of the GPUs" if near[1] is Distance.NODE else "not beside any GPU"
    return "" if hca.name in near[0] else f"{where}: storage or management"


def _inactive(port: Port) -> str:
    if port.state is PortState.ACTIVE:
        return ""
    if port.state is PortState.INIT:
        return f"port {port.number} is INIT: no subnet manager has seen it"
    return f"port {port.number} is {port.state}"


def _for_storage(machine: Machine, hca: Hca, port: Port) -> bool:
    names = {link.name for link in machine.interfaces if machine.hca_port(link) == (hca, port)}
    return any("stor" in name.lower() for name in {hca.name, *names, *port.netdevs})


def _layer(left: _Ports) -> Layer:
    """InfiniBand, unless RoCE is faster both by port and in all."""
    rates = {layer: [port.rate for _, port in left if port.layer is layer] for layer in Layer}
    roce, native = rates[Layer.ETHERNET], rates[Layer.INFINIBAND]
    if not native or (roce and max(roce) > max(native) and sum(roce) > sum(native)):
        return Layer.ETHERNET
    return Layer.INFINIBAND


def _mixed(layer: Layer, taken: Layer) -> str:
    words = {Layer.INFINIBAND: "InfiniBand", Layer.ETHERNET: "RoCE", Layer.UNKNOWN: "unknown"}
    return f"{words[layer]}, and {words[taken]} is taken: link layers are not mixed"


def _slower(port: Port, best: int) -> str:
    return (
        f"{port.rate} Gb/s, slower than the {best} Gb/s taken"
        if port.rate
        else f"its rate is unknown, {best} Gb/s are taken"
    )


def _setting(left: _Ports) -> str:
    """Exact (`=`), because plain names are prefixes; the port only where its HCA has others that are not meant."""
    names = []
    for hca in sorted({hca.name: hca for hca, _ in left}.values(), key=lambda item: natural(item.name)):
        taken = [port.number for other, port in left if other is hca]
        whole = len(taken) == len(hca.ports)
        names += [hca.name] if whole else [f"{hca.name}:{number}" for number in taken]
    return "=" + ",".join(names)


def _reason(left: _Ports, near: _Near | None, best: int, machine: Machine) -> str:
    if not left:
        return f"none of {_count(len(machine.hcas), 'HCA')} belongs to NCCL"
    word = "InfiniBand" if left[0][1].layer is Layer.INFINIBAND else "RoCE"
    where = " beside the GPUs" if near and near[1] < Distance.NODE else ""
    rate = f"{best} Gb/s" if best else "unknown rate"
    return f"{_count(len({hca.name for hca, _ in left}), 'HCA')} ({word}) at {rate}{where}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _warnings(left: _Ports, near: _Near | None, ports: _Ports, awake: _Ports) -> Iterable[str]:
    if near is None:
        return
    active = {hca.name for hca, _ in awake}
    missing = ", ".join(sorted({hca.name for hca, _ in ports} & near[0] - active, key=natural))
    if missing and left:
        yield f"beside the GPUs, but not active: {missing}"
    elif missing and awake:
        yield f"no HCA beside the GPUs is active ({missing}), and the others are not used in their place"


class _Sieve:
    """Takes candidates out and remembers the first reason for each."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}
        self._ports: dict[str, dict[int, str]] = {}

    def drop(self, hca: Hca, why: str) -> bool:
        if why:
            self._whole[hca.name] = why
        return bool(why)

    def keep(self, left: _Ports, test: Callable[[Hca, Port], str]) -> _Ports:
        kept: _Ports = []
        for hca, port in left:
            why = test(hca, port)
            if why:
                self._ports.setdefault(hca.name, {})[port.number] = why
            else:
                kept.append((hca, port))
        return kept

    def told(self, taken: set[str]) -> tuple[Rejected, ...]:
        """One entry for an HCA, or one for a port where another port of its HCA is taken."""
        found = [Rejected(name=name, why=why) for name, why in self._whole.items()]
        for name, ports in self._ports.items():
            if name in taken:
                found += [Rejected(name=f"{name}:{number}", why=why) for number, why in ports.items()]
            else:
                found.append(Rejected(name=name, why="; ".join(dict.fromkeys(ports.values()))))
        return tuple(sorted(found, key=lambda item: natural(item.name)))
