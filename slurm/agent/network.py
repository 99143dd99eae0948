"""Where the workers of this node are reached: interface, address, and the socket on which rank 0 will listen."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm.node.addresses import read_addresses
from slurm.node.choose import choose
from slurm.node.explicit import Wanted
from slurm.node.links import Candidate
from slurm.node.sysfs import read_machine

_SYSFS = Path("/sys")


@dataclass(frozen=True, kw_only=True)
class Link:
    """`nccl` and `hcas` are values for NCCL, "" not set. `reason`: why this one. `note`: what is odd, "" nothing.

    `usable`: what could be taken instead. `fixed`: somebody has set it.
    """

    interface: str
    address: str
    nccl: str = ""
    hcas: str = ""
    reason: str = ""
    note: str = ""
    usable: tuple[Candidate, ...] = ()
    fixed: bool = False


def choose_link(*, local: bool, wanted: str, environment: Mapping[str, str] = os.environ) -> Link:
    """The loopback for local runs, else what [node] interface or the environment says, else the best there is.

    Raises:
        OSError: the interface asked for has no address here.
    """
    if local:
        return Link(interface="lo", address="127.0.0.1")
    try:
        machine = read_machine(_SYSFS, read_addresses(_SYSFS))
    except OSError as error:
        return _by_name(f"the network cannot be read: {error}", wanted)
    asked = Wanted.from_environment(environment, wanted)
    choice = choose(machine, asked)
    if choice.address is None:
        return _by_name(choice.reason, wanted)
    return Link(
        interface=choice.interface,
        address=choice.address,
        nccl=choice.nccl_socket or "",
        hcas=choice.nccl_hca or "",
        reason=choice.reason,
        note="; ".join(choice.warnings),
        usable=choice.usable,
        fixed=bool(asked.source),
    )


def _by_name(why: str, wanted: str) -> Link:
    """The host name's address: enough for a node by itself, and said. Not in place of what was asked for."""
    host = socket.gethostname()
    if wanted:
        raise OSError(f"[node] interface {wanted!r}: {why} on {host}")
    address = socket.gethostbyname(host)
    return Link(interface="", address=address, note=f"{why}; using {address}, the host name's address")


def hold_port(link: Link) -> socket.socket:
    """A socket bound to a free port: from now on nobody can take the port before rank 0 has it.

    It does not listen yet. Ranks of other nodes may be there before rank 0: refused, they try again; accepted into our
    backlog, they would be cut off when rank 0 takes over. Without SO_REUSEADDR no other program can share the port.
    """
    family = socket.AF_INET6 if ":" in link.address else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.bind((link.address, 0))
    except OSError:
        held.close()
        raise
    return held
