"""Builds the sysfs of a machine from its short description in tests/data/sysfs/NAME.toml."""

import json
import os
import re
import tomllib
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "sysfs"
TYPES = {"ib": 32, "lo": 772, "none": 65534}


def described(name: str) -> dict:
    return tomllib.loads((DATA / f"{name}.toml").read_text())


def machines() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.toml"))


def expanded(items: dict) -> dict:
    """`"ib{0-7}" = {…}` stands for eight entries; `{}` in its values becomes the number."""
    found = {}
    for name, value in items.items():
        stem, brace, rest = name.partition("{")
        if not brace:
            found[name] = value
            continue
        span, _, tail = rest.partition("}")
        first, last = (int(part) for part in span.split("-"))
        for number in range(first, last + 1):
            found[f"{stem}{number}{tail}"] = filled(value, number)
    return found


def filled(value, number: int):
    if isinstance(value, str):
        return value.replace("{}", str(number)).replace("{x}", f"{number:x}")
    if isinstance(value, list):
        return [filled(item, number) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, number) for key, item in value.items()}
    return value


def card(at: str) -> str:
    """The PCI function in the path of a device: what hangs on it (virtio0, usb1/…) comes after."""
    parts = at.split("/")
    places = [
        number for number, part in enumerate(parts) if re.fullmatch(r"[0-9a-f]{4,}:..:..[.][0-7]", part)
    ]
    last = max(places, default=-1)
    return "/".join(parts[: last + 1])


class Builder:
    """`layout`: `links` is the kernel's own; `sys` the same below sys/; `flat` has directories and no device tree."""

    def __init__(self, root: Path, machine: dict, layout: str = "links") -> None:
        self.root, self.flat = root, layout == "flat"
        self.base = root / "sys" if layout == "sys" else root
        self.links = expanded(machine.get("net", {}))
        self.hcas = expanded(machine.get("hca", {}))
        self.indexes = {name: number for number, name in enumerate(["lo", *self.links], start=1)}
        (self.base / "class/net").mkdir(parents=True)
        (self.base / "class/net/bonding_masters").write_text("bond0\n")
        for gpu in expanded(machine.get("gpu", {})).values():
            kind = machine.get("gpu_class", "0x030200")
            self.function(gpu["at"], numa=gpu.get("numa", 0), kind=kind, vendor="0x10de")
        for path, kind in machine.get("other", {}).items():
            self.function(path, numa=0, kind=kind, vendor="0x10de")
        self.interface("lo", {"type": "lo", "state": "unknown", "speed": "", "virtual": True})
        for name, value in self.links.items():
            self.interface(name, value)
        for name, value in self.hcas.items():
            self.hca(name, value)
        for name, value in self.links.items():
            self.relations(name, value)
        self.addresses(machine)

    def function(self, path: str, *, numa: int, kind: str, vendor: str, driver: str = "") -> Path:
        where = self.base / "devices" / path
        where.mkdir(parents=True, exist_ok=True)
        if not (where / "class").exists():
            write(where, {"class": kind, "vendor": vendor, "numa_node": numa})
            write(where, {"uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={where.name}"})
            if driver:
                (where / "driver").symlink_to(f"../../bus/pci/drivers/{driver}")
            bus = self.base / "bus/pci/devices"
            bus.mkdir(parents=True, exist_ok=True)
            (bus / where.name).symlink_to(os.path.relpath(where, bus))
        return where

    def interface(self, name: str, value: dict) -> None:
        at = value.get("at", "")
        entry = self.base / "class/net" / name
        where = entry
        if not self.flat:
            if card(at):
                self.function(
                    card(at), numa=value.get("numa", -1), kind="0x020000",
                    vendor=value.get("vendor", "0x15b3"), driver=value.get("driver", "mlx5_core"),
                )  # fmt: skip
            where = self.base / "devices" / (at or "virtual") / "net" / name
            entry.symlink_to(os.path.relpath(where, entry.parent))
        where.mkdir(parents=True, exist_ok=True)
        if at and not self.flat:
            (where / "device").symlink_to("../..")
            if value.get("physfn") and not (where.parents[1] / "physfn").is_symlink():
                (where.parents[1] / "physfn").symlink_to(f"../{value['physfn']}")
        elif at:
            (where / "device").mkdir()
            write(
                where / "device",
                {"numa_node": value.get("numa", -1), "vendor": value.get("vendor", "0x15b3")},
            )
            slot = card(at).split("/")[-1]
            write(where / "device", {"uevent": f"DRIVER={value.get('driver', '')}\nPCI_SLOT_NAME={slot}"})
        self.attributes(where, name, value)

    def attributes(self, where: Path, name: str, value: dict) -> None:
        kind = value.get("type", 1)
        state = value.get("state", "up")
        runs = state in {"up", "unknown"}
        write(where, {
            "operstate": state,
            "carrier": value.get("carrier", 1 if runs else 0),
            "speed": value.get("speed", ""),
            "type": TYPES.get(kind, kind),
            "flags": value.get("flags", "0x1003" if state != "off" else "0x1002"),
            "mtu": 1500,
            "dev_port": value.get("dev_port", 0),
            "ifindex": self.indexes[name],
            "iflink": self.indexes.get(value.get("on", ""), value.get("iflink", self.indexes[name])),
            "uevent": f"DEVTYPE={value.get('devtype', '')}\nINTERFACE={name}",
        })  # fmt: skip
        if state == "off":
            write(where, {"operstate": "down", "carrier": ""})
        if "slaves" in value:
            (where / "bonding").mkdir()
            write(where / "bonding", {
                "slaves": value["slaves"], "mode": value.get("mode", "802.3ad 4"),
                "active_slave": value.get("active", ""),
            })  # fmt: skip
        if value.get("devtype") == "bridge":
            (where / "bridge").mkdir()
            (where / "brif").mkdir()
        for folder in value.get("folders", []):
            (where / folder).mkdir(exist_ok=True)
        write(where, value.get("files", {}))

    def relations(self, name: str, value: dict) -> None:
        net = self.base / "class/net"
        below = [
            *value.get("slaves", "").split(),
            *value.get("ports", []),
            *([value["on"]] if "on" in value else []),
        ]
        for leg in below:
            if leg in self.indexes:
                (net / name / f"lower_{leg}").symlink_to(f"../{leg}")
                (net / leg / f"upper_{name}").symlink_to(f"../{name}")
        for leg in [*value.get("slaves", "").split(), *value.get("ports", [])]:
            if leg in self.indexes and not (net / leg / "master").is_symlink():
                (net / leg / "master").symlink_to(f"../{name}")
        for port in value.get("ports", []):
            (net / name / "brif").mkdir(exist_ok=True)
            (net / name / "brif" / port).symlink_to(f"../../{port}/brport")
        if "master" in value:
            (net / name / "master").symlink_to(f"../{value['master']}")

    def hca(self, name: str, value: dict) -> None:
        entry = self.base / "class/infiniband" / name
        entry.parent.mkdir(parents=True, exist_ok=True)
        at = value.get("at", "")
        if self.flat:
            entry.mkdir()
            (entry / "device/net").mkdir(parents=True)
            write(entry / "device", {"numa_node": value.get("numa", -1), "vendor": value.get("vendor", "0x15b3"),
                                     "uevent": f"DRIVER={value.get('driver', 'mlx5_core')}\nPCI_SLOT_NAME={at.split('/')[-1]}"})  # fmt: skip
            for net, item in self.links.items():
                if item.get("at") == at:
                    (entry / "device/net" / net).mkdir()
        else:
            device = self.base / "devices/virtual"
            if at:
                device = self.function(
                    at, numa=value.get("numa", -1), kind="0x020700",
                    vendor=value.get("vendor", "0x15b3"), driver=value.get("driver", "mlx5_core"),
                )  # fmt: skip
            where = device / "infiniband" / name
            where.mkdir(parents=True)
            entry.symlink_to(os.path.relpath(where, entry.parent))
            if at:
                (where / "device").symlink_to("../..")
            if value.get("physfn") and not (device / "physfn").is_symlink():
                (device / "physfn").symlink_to(f"../{value['physfn']}")
        write(entry, {"node_type": value.get("node_type", "1: CA"), "node_guid": "0000:0000:0000:0001"})
        for number, port in enumerate(value.get("ports", [value]), start=1):
            where = entry / "ports" / str(number)
            (where / "gid_attrs/ndevs").mkdir(parents=True)
            (where / "gid_attrs/types").mkdir(parents=True)
            write(where, {
                "state": port.get("state", "4: ACTIVE"),
                "phys_state": "5: LinkUp" if port.get("state", "4: ACTIVE") == "4: ACTIVE" else "3: Disabled",
                "link_layer": port.get("layer", "InfiniBand"),
                "rate": port.get("rate", "400 Gb/sec (4X NDR)"),
            })  # fmt: skip
            for index, ndev in enumerate([*port.get("ndevs", []), ""]):
                write(where / "gid_attrs/ndevs", {str(index): ndev})
                write(where / "gid_attrs/types", {str(index): "RoCE v2" if ndev else ""})

    def addresses(self, machine: dict) -> None:
        interfaces = {"lo": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]}
        for name, value in self.links.items():
            interfaces[name] = [recorded(text) for text in value.get("ip", [])]
        routes = [{"dst": "default", "family": "inet", **route} for route in machine.get("routes", [])]
        value = {"hostname": "node", "interfaces": interfaces, "routes": routes}
        (self.root / "addresses.json").write_text(json.dumps(value))


def recorded(text: str) -> dict:
    local, _, prefix = text.partition("/")
    six = ":" in local
    near = local.startswith(("fe80", "169.254."))
    return {
        "family": "inet6" if six else "inet",
        "local": local,
        "prefixlen": int(prefix),
        "scope": "link" if near else "global",
    }


def write(where: Path, files: dict) -> None:
    for name, value in files.items():
        (where / name).write_text(f"{value}\n" if value != "" else "")


def build(root: Path, machine: dict | str, layout: str = "links") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    Builder(root, described(machine) if isinstance(machine, str) else machine, layout)
    return root
