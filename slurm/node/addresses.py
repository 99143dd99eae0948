"""The addresses and default routes of a node: from the kernel by netlink, or recorded in addresses.json."""

import ipaddress
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.node.machine import Ip

RECORDED = "addresses.json"

_GETADDR, _GETROUTE, _DONE, _ERROR = 22, 26, 3, 2
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_RTA_OIF, _RTA_PRIORITY, _RTA_MULTIPATH = 4, 6, 9
_TENTATIVE, _DAD_FAILED = 0x40, 0x08
_MAIN_TABLE, _UNICAST, _SCOPE_LINK = 254, 1, 253
_V6_METRIC = 1024


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Usable addresses only (no loopback, no link-local, nothing that others cannot reach), IPv4 first."""

    host: str = ""
    interfaces: Mapping[str, tuple[Ip, ...]] = field(default_factory=dict)
    default_route: str = ""

    def of(self, name: str) -> tuple[Ip, ...]:
        return self.interfaces.get(name, ())


def read_addresses(root: Path) -> Addresses:
    """What was recorded beside this sysfs tree; of the running kernel where the tree is the kernel's own.

    Raises:
        OSError: nothing was recorded, or the kernel does not answer.
        ValueError: what was recorded cannot be read.
    """
    for place in (root / RECORDED, root / "sys" / RECORDED):
        if place.is_file():
            return parse_recorded(json.loads(place.read_text(encoding="utf-8")))
    if root.resolve() == Path("/sys"):
        return kernel_addresses()
    raise FileNotFoundError(f"{root}: no {RECORDED} there, and sysfs holds no addresses")


def parse_recorded(value: Any) -> Addresses:
    """From the shape of addresses.json, or from what `ip -j addr` prints.

    Raises:
        ValueError: it has another shape.
    """
    if isinstance(value, list):
        value = {"interfaces": {item["ifname"]: item.get("addr_info", []) for item in value}}
    try:
        found: dict[str, list[Ip]] = {}
        for name, entries in value["interfaces"].items():
            known = entries.get("addr_info", []) if isinstance(entries, dict) else entries
            base = name.partition("@")[0].partition(":")[0]  # eth0@if7 and the label eth0:1 are eth0
            found.setdefault(base, []).extend(ip for entry in known if (ip := _recorded_ip(entry)))
        routes = [route for entry in value.get("routes") or [] if (route := _recorded_route(entry))]
        return Addresses(
            host=str(value.get("hostname") or ""),
            interfaces={name: _ordered(ips) for name, ips in found.items()},
            default_route=min(routes)[2] if routes else "",
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{RECORDED}: not the expected shape: {type(error).__name__}: {error}") from error


def _recorded_ip(entry: Mapping[str, Any]) -> Ip | None:
    if entry.get("scope") in {"host", "link", "nowhere"} or entry.get("tentative") or entry.get("dadfailed"):
        return None
    if not entry.get("local"):
        return None
    local = ipaddress.ip_address(str(entry["local"]).partition("%")[0].partition("/")[0])
    prefix = entry.get("prefixlen")
    return _usable(f"{local}/{local.max_prefixlen if prefix is None else prefix}")


def _recorded_route(entry: Mapping[str, Any]) -> tuple[bool, int, str] | None:
    """Sorts IPv4 first, then by metric."""
    target = str(entry.get("dst", ""))
    if target not in {"default", "0.0.0.0/0", "::/0"} or entry.get("type", "unicast") != "unicast":
        return None
    gateway = str(entry.get("gateway") or "")
    six = entry.get("family") == "inet6" or target == "::/0" or ":" in gateway
    hops = entry.get("nexthops") or [{}]
    device = entry.get("dev") or hops[0].get("dev") or ""
    metric = entry.get("metric")
    return (six, int(_V6_METRIC * six if metric is None else metric), str(device)) if device else None


def _usable(text: str) -> Ip | None:
    found = ipaddress.ip_interface(text)
    ip = found.ip
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return None
    return found


def _ordered(ips: list[Ip]) -> tuple[Ip, ...]:
    return tuple(sorted(dict.fromkeys(ips), key=lambda ip: ip.version))


# -- the kernel ----------------------------------------------------------------------------------------------


def kernel_addresses() -> Addresses:
    """Of this network namespace.

    Raises:
        OSError: the kernel does not answer.
    """
    names = dict(socket.if_nameindex())
    found: dict[str, list[Ip]] = {}
    for body in _dump(_GETADDR):
        prefix, flags, scope, index = body[1], body[2], body[3], struct.unpack_from("=I", body, 4)[0]
        parts = dict(_attributes(body[8:]))
        if _IFA_FLAGS in parts:
            flags = struct.unpack("=I", parts[_IFA_FLAGS])[0]
        packed = parts.get(_IFA_LOCAL) or parts.get(_IFA_ADDRESS)
        if packed is None or scope >= _SCOPE_LINK or flags & (_TENTATIVE | _DAD_FAILED):
            continue
        ip = _usable(f"{ipaddress.ip_address(packed)}/{prefix}")
        if ip and index in names:
            found.setdefault(names[index], []).append(ip)
    routes = [(six, metric, names[index]) for six, metric, index in _kernel_routes() if index in names]
    return Addresses(
        host=socket.gethostname(),
        interfaces={name: _ordered(ips) for name, ips in found.items()},
        default_route=min(routes)[2] if routes else "",
    )


def _kernel_routes() -> Iterator[tuple[bool, int, int]]:
    for body in _dump(_GETROUTE):
        family, target, table, kind = body[0], body[1], body[4], body[7]
        if target != 0 or table != _MAIN_TABLE or kind != _UNICAST:
            continue
        if family not in {socket.AF_INET, socket.AF_INET6}:
            continue
        parts = dict(_attributes(body[12:]))
        metric = struct.unpack("=I", parts[_RTA_PRIORITY])[0] if _RTA_PRIORITY in parts else 0
        if _RTA_OIF in parts:
            yield family == socket.AF_INET6, metric, struct.unpack("=i", parts[_RTA_OIF])[0]
        elif len(parts.get(_RTA_MULTIPATH, b"")) >= 8:  # several equal ways: the first stands for all
            yield family == socket.AF_INET6, metric, struct.unpack_from("=i", parts[_RTA_MULTIPATH], 4)[0]


def _dump(kind: int) -> Iterator[bytes]:
    """The bodies of all messages that answer a dump request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(5)
        link.bind((0, 0))
        link.send(struct.pack("=IHHIIB3x", 20, kind, _REQUEST_DUMP, 1, 0, socket.AF_UNSPEC))
        while True:
            data = link.recv(1 << 18)
            while data:
                length, what = struct.unpack_from("=IH", data)
                if what == _DONE:
                    return
                if what == _ERROR:
                    code = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(code, "the kernel refuses to list addresses")
                yield data[16:length]
                data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind, data[4:length]
        data = data[(length + 3) & ~3 :]
