"""Settings that somebody made: they are obeyed, and what is odd about them is said. Pure.

NCCL's lists: one sign for the whole list, `^` excludes, `=` is exact, without it names are prefixes; a value of one
character is ignored. Gloo's list: exact names, no sign, every one must exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm.node.hcas import HcaChoice, unsuited
from slurm.node.machine import Machine, PortState

NCCL_SOCKET, NCCL_HCA, GLOO_SOCKET = "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """`interface` is [node] interface. An empty string is not set: NCCL and Gloo read it like that too."""

    interface: str = ""
    nccl_socket: str = ""
    nccl_hca: str = ""
    gloo_socket: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], interface: str = "") -> "Wanted":
        return cls(
            interface=interface,
            nccl_socket=environment.get(NCCL_SOCKET, ""),
            nccl_hca=environment.get(NCCL_HCA, ""),
            gloo_socket=environment.get(GLOO_SOCKET, ""),
        )

    @property
    def source(self) -> str:
        """The setting that says which interface, "" when none does."""
        if self.interface:
            return f"[node] interface = {self.interface}"
        if self.nccl_socket:
            return f"{NCCL_SOCKET}={self.nccl_socket}"
        return f"{GLOO_SOCKET}={self.gloo_socket}" if self.gloo_socket else ""

    def named(self, names: Sequence[str]) -> list[str]:
        """Which of these interfaces the setting means, in the order given."""
        if self.interface:
            return [name for name in names if name == self.interface]
        if self.nccl_socket:
            return matching(self.nccl_socket, names)
        return [name for name in self.gloo_socket.split(",") if name in names]


def matching(setting: str, names: Sequence[str]) -> list[str]:
    """The names that one of NCCL's lists lets through."""
    excludes = setting.startswith("^")
    rest = setting.removeprefix("^")
    exact = rest.startswith("=")
    entries = [entry.partition(":")[0] for entry in rest.removeprefix("=").split(",") if entry]

    def meant(name: str) -> bool:
        return any(name == entry if exact else name.startswith(entry) for entry in entries)

    return [name for name in names if meant(name) is not excludes]


def oddities(wanted: Wanted, machine: Machine, hcas: HcaChoice) -> Iterable[str]:
    """What a person should know about their own settings."""
    names = [link.name for link in machine.interfaces]
    if wanted.nccl_socket:
        yield from _nccl_list(NCCL_SOCKET, wanted.nccl_socket, names)
    if wanted.nccl_hca:
        yield from _nccl_list(NCCL_HCA, wanted.nccl_hca, [hca.name for hca in machine.hcas])
        yield from _hca_list(wanted.nccl_hca, machine, hcas)
    if wanted.gloo_socket:
        yield from _gloo_list(wanted.gloo_socket, names)
    if (
        wanted.interface
        and wanted.nccl_socket
        and wanted.interface not in matching(wanted.nccl_socket, names)
    ):
        yield f"{NCCL_SOCKET}={wanted.nccl_socket} does not mean [node] interface = {wanted.interface}"


def _nccl_list(variable: str, setting: str, names: Sequence[str]) -> Iterable[str]:
    if len(setting) <= 1:
        yield f"{variable}={setting}: NCCL ignores a value of one character"
        return
    found = matching(setting, names)
    if not found:
        yield f"{variable}={setting} matches nothing here ({', '.join(names) or 'there is nothing'})"
    if setting[0] in "^=":
        return
    for entry in (item.partition(":")[0] for item in setting.split(",")):
        longer = [name for name in found if name.startswith(entry) and name != entry]
        if entry in found and longer:
            yield f"{variable}={setting} is a prefix and also matches {', '.join(longer)}; ={setting} is exact"


def _gloo_list(setting: str, names: Sequence[str]) -> Iterable[str]:
    if setting[0] in "^=":
        yield f"{GLOO_SOCKET}={setting}: Gloo knows no signs, only exact names"
        return
    missing = [name for name in setting.split(",") if name not in names]
    if missing:
        yield f"{GLOO_SOCKET}={setting}: no interface {', '.join(missing)} here, and Gloo fails without"


def _hca_list(setting: str, machine: Machine, hcas: HcaChoice) -> Iterable[str]:
    meant = set(matching(setting, [hca.name for hca in machine.hcas]))
    for hca in machine.hcas:
        if hca.name not in meant:
            continue
        why = unsuited(machine, hca)
        if why:
            yield f"{NCCL_HCA}={setting} takes {hca.name}: {why}"
        elif all(port.state is not PortState.ACTIVE for port in hca.ports):
            yield f"{NCCL_HCA}={setting} takes {hca.name}, which has no active port"
    ours = {hca.name for hca, _ in hcas.taken}
    if ours and meant and ours != meant:
        yield f"{NCCL_HCA}={setting}, where {hcas.setting} would be the choice"
