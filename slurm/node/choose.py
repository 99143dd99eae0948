"""The network of one node: which interface carries the sockets, which HCAs carry NCCL, and why. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm.node.explicit import GLOO_SOCKET, NCCL_HCA, NCCL_SOCKET, Wanted, oddities
from slurm.node.hcas import Rejected, choose_hcas
from slurm.node.links import ASSUMED, Candidate, candidates, equals, rate_of, why_not
from slurm.node.machine import Interface, Kind, Machine, natural


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is exported on this node. `usable`: everything that could be taken instead, best first.

    `undecided` names the interfaces that the advertised rates cannot tell from the one taken: a probe between the
    nodes decides.
    """

    interface: str = ""
    address: str | None = None
    nccl_socket: str | None = None
    nccl_hca: str | None = None
    gloo_socket: str | None = None
    reason: str = ""
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    usable: tuple[Candidate, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether there is an address that other nodes can reach."""
        return self.address is not None

    def variables(self) -> dict[str, str]:
        """What to export."""
        known = {NCCL_SOCKET: self.nccl_socket, NCCL_HCA: self.nccl_hca, GLOO_SOCKET: self.gloo_socket}
        return {name: value for name, value in known.items() if value}

    def as_json(self) -> dict[str, Any]:
        """The output of `ciuic tune --json`."""
        return {
            NCCL_SOCKET: self.nccl_socket,
            NCCL_HCA: self.nccl_hca,
            GLOO_SOCKET: self.gloo_socket,
            "address": self.address,
            "reason": self.reason,
            "rejected": [{"name": item.name, "why": item.why} for item in self.rejected],
            "warnings": list(self.warnings),
        }


def choose(machine: Machine, wanted: Wanted | None = None) -> Choice:
    """The network of this node; what somebody has set wins."""
    wanted = wanted or Wanted()
    hcas = choose_hcas(machine)
    usable, unusable = candidates(machine, hcas)
    odd = list(oddities(wanted, machine, hcas))
    taken, alike = (usable[0] if usable else None), list[Candidate]()
    if wanted.source:
        name, address, why = _obeyed(machine, wanted, usable)
        odd += _regrets(machine, name, usable, address)
    elif taken is None:
        name, address, why = "", None, f"no usable interface among {_listing(unusable)}"
    else:
        alike = equals(taken, usable[1:])
        name, address, why = taken.name, str(taken.address.ip), _why(taken, usable, alike)
    rejected = [*unusable, *(_passed_over(item, usable, name) for item in usable if item.name != name)]
    rejected = [item for item in rejected if item.name != name]
    warnings = [*odd, *hcas.warnings]
    set_hca = f"{NCCL_HCA}={wanted.nccl_hca} is set" if wanted.nccl_hca else hcas.reason
    return Choice(
        interface=name,
        address=address,
        nccl_socket=wanted.nccl_socket or (f"={name}" if name and (address or wanted.source) else None),
        nccl_hca=wanted.nccl_hca or (hcas.setting if address else None),
        gloo_socket=wanted.gloo_socket or name or None,
        reason="; ".join([why, set_hca, *warnings]),
        rejected=(*sorted(rejected, key=lambda item: natural(item.name)), *hcas.rejected),
        warnings=tuple(warnings),
        undecided=tuple(item.name for item in alike),
        usable=tuple(usable),
    )


def _obeyed(machine: Machine, wanted: Wanted, usable: Sequence[Candidate]) -> tuple[str, str | None, str]:
    """Interface, address and reason for what somebody has set, as far as it exists here."""
    good = {item.name: item for item in usable}
    names = wanted.named([link.name for link in machine.interfaces])
    best = next((item for item in usable if item.name in names), None)
    if best is not None:
        return best.name, str(best.address.ip), f"{wanted.source} is set: {best.name} at {_rate(best.rate)}"
    link = next((machine.interface(name) for name in names if name not in good), None)
    if link is None:
        there = ", ".join(item.name for item in machine.interfaces) or "none"
        return (
            wanted.interface,
            None,
            f"{wanted.source} is set, but there is no such interface here ({there})",
        )
    address = str(link.addresses[0].ip) if link.addresses else None
    if link.kind is Kind.LOOPBACK:
        address = address or "127.0.0.1"
    return link.name, address, f"{wanted.source} is set: {link.name} at {_rate(rate_of(machine, link))}"


def _regrets(machine: Machine, name: str, usable: Sequence[Candidate], address: str | None) -> list[str]:
    """What speaks against the interface that somebody has set."""
    link = machine.interface(name)
    found = []
    why = why_not(machine, link) if link else ""
    if link and not address:
        found.append(f"{name} has no address that others can reach")
    elif why:
        found.append(f"{name}: {why}")
    best = usable[0] if usable else None
    if best and link and best.name != name and _slower(machine, link, best):
        found.append(f"{name} runs at {_rate(rate_of(machine, link))}, {best.name} at {_rate(best.rate)}")
    return found


def _slower(machine: Machine, link: Interface, best: Candidate) -> bool:
    rate = rate_of(machine, link)
    return best.rate is not None and rate is not None and best.rate > rate


def _why(taken: Candidate, usable: Sequence[Candidate], alike: Sequence[Candidate]) -> str:
    text = f"{taken.name} ({taken.address}) at {_rate(taken.rate)}"
    slower = [item for item in usable if item.tier == taken.tier and item not in (taken, *alike)]
    later = [item for item in usable if item.tier > taken.tier]
    if taken.against:
        text += f", {taken.against}, for want of anything better"
    if alike:
        some = ", ".join(f"{item.name} ({_rate(item.rate)})" for item in alike[:3])
        like = some + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
        basis = "on the default route" if taken.default else "the first in order"
        text += f": the advertised rates do not tell it from {like}, a probe between the nodes decides; {basis} meanwhile"
    elif slower:
        text += f", the fastest of {1 + len(slower)} usable interfaces"
    elif later:
        text += f", preferred to {later[0].name} ({later[0].against})"
    elif len(usable) == 1:
        text += ", the only usable interface"
    return text


def _passed_over(item: Candidate, usable: Sequence[Candidate], taken: str) -> Rejected:
    best = next((other for other in usable if other.name == taken), None)
    rate = _rate(item.rate)
    if best is None:
        why = f"usable at {rate}, but another one is set"
    elif item.under == best.under:
        why = f"the same cable as {taken}"
    elif item.weight < best.weight:
        why = f"better at {rate}, but {taken} is set"
    elif item.tier > best.tier:
        why = item.against
    elif item.weight > best.weight:
        why = f"{rate}, slower than {taken} at {_rate(best.rate)}"
    elif (best.default, best.near_default) > (item.default, item.near_default):
        why = f"as fast as {taken}, which is on the default route's network"
    else:
        why = f"as fast as {taken}, which comes first"
    return Rejected(name=item.name, why=why)


def _rate(megabits: int | None) -> str:
    if megabits is None:
        return f"an unknown rate (taken as {ASSUMED // 1000} Gb/s)"
    return f"{megabits / 1000:g} Gb/s" if megabits >= 1000 else f"{megabits} Mb/s"


def _listing(rejected: Sequence[Rejected]) -> str:
    listed = ", ".join(f"{item.name} ({item.why})" for item in rejected[:8])
    more = len(rejected) - 8
    return (listed + (f" and {more} more" if more > 0 else "")) or "none at all"
