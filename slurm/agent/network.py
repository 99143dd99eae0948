"""Where the workers of this node are reached: interface, address, and the socket on which rank 0 will listen."""

import fcntl
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_SIOCGIFADDR = 0x8915
_ROUTES = Path("/proc/net/route")


@dataclass(frozen=True, kw_only=True)
class Link:
    """`note` says what was fallen back to, "" when nothing was."""

    interface: str
    address: str
    note: str = ""


def choose_link(*, local: bool, wanted: str) -> Link:
    """The loopback for local runs, else the interface asked for, else that of the default route.

    Raises:
        OSError: the interface asked for has no IPv4 address here.
    """
    if local:
        return Link(interface="lo", address="127.0.0.1")
    if wanted:
        return Link(interface=wanted, address=_address_of(wanted))
    interface = default_interface(_ROUTES.read_text(encoding="ascii"))
    if interface:
        return Link(interface=interface, address=_address_of(interface))
    address = socket.gethostbyname(socket.gethostname())
    return Link(
        interface="", address=address, note=f"no default route here: using {address}, the host name's address"
    )


def default_interface(routes: str) -> str:
    """Interface of the default route with the smallest metric in the text of /proc/net/route, "" without one."""
    found = []
    for line in routes.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            found.append((int(fields[6]), fields[0]))
    return min(found)[1] if found else ""


def hold_port(link: Link) -> socket.socket:
    """A socket bound to a free port: from now on nobody can take the port before rank 0 has it.

    It does not listen yet. Ranks of other nodes may be there before rank 0: refused, they try again; accepted into our
    backlog, they would be cut off when rank 0 takes over. Without SO_REUSEADDR no other program can share the port.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind((link.address, 0))
    except OSError:
        held.close()
        raise
    return held


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise OSError(
                f"[node] interface {interface!r}: {error.strerror} on {socket.gethostname()}"
            ) from error
    return socket.inet_ntoa(packed[20:24])
