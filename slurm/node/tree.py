"""A sysfs tree on disk: its files, its links, and where on PCI its devices sit.

Recorded trees differ: classes may hold directories or links, links may point at a device tree that was not recorded,
and a file that the kernel refuses to read (EINVAL) is there but empty. Whatever is missing stays unknown.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm.node.machine import Place, natural

_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_NVIDIA = "0x10de"
_COMPUTE, _DISPLAY = "0x0302", "0x0300"  # PCI classes


@dataclass(frozen=True, kw_only=True)
class Tree:
    """sysfs below `base`. `paths` and `files`: for each PCI function, where it sits and its directory."""

    base: Path
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path) -> "Tree":
        """The sysfs that this directory is, or holds as `sys`.

        Raises:
            FileNotFoundError: there is none.
        """
        base = next((place for place in (root / "sys", root) if (place / "class").is_dir()), None)
        if base is None:
            raise FileNotFoundError(f"{root}: no sysfs there (neither class/ nor sys/class/)")
        paths: dict[str, tuple[str, ...]] = {}
        files: dict[str, Path] = {}
        for function, where in _functions(base):
            path = max(path_of(os.path.realpath(where)), path_of(link_text(where)), (function,), key=len)
            files.setdefault(function, where)
            if len(path) > len(paths.get(function, ())):
                paths[function] = path
        return cls(base=base, paths=paths, files=files)

    def entries(self, where: str) -> list[str]:
        """Names of the devices of a class (its plain files, such as bonding_masters, are none)."""
        return [item.name for item in listed(self.base / where) if item.is_symlink() or item.is_dir()]

    def place(self, entry: Path) -> Place:
        """Where on PCI this entry of a class sits."""
        device = entry / "device"
        tried = [path_of(os.path.realpath(device)), path_of(os.path.realpath(entry))]
        tried += [
            path_of(link_text(entry)),
            path_of(link_text(device)),
            path_of(uevent(device, "PCI_SLOT_NAME")),
        ]
        path = max(tried, key=len)
        path = self.paths.get(path[-1], path) if path else ()
        numa = [
            device / "numa_node",
            *([self.files[path[-1]] / "numa_node"] if path and path[-1] in self.files else []),
        ]
        parent = device / "physfn"
        return Place(
            path=path, numa=first_number(numa), parent_function=target(parent) if parent.is_symlink() else ""
        )

    def gpus(self) -> Iterator[Place]:
        """Where the GPUs are: compute cards if there are any (a display adapter beside them does not train)."""
        found: dict[str, list[str]] = {_COMPUTE: [], _DISPLAY: []}
        for function, where in self.files.items():
            group = found.get((read(where / "class") or "")[:6])
            if group is not None and read(where / "vendor") == _NVIDIA:
                group.append(function)
        for function in sorted(found[_COMPUTE] or found[_DISPLAY]):
            numa = first_number([self.files[function] / "numa_node"])
            yield Place(path=self.paths[function], numa=numa)


def _functions(base: Path) -> Iterator[tuple[str, Path]]:
    """Each PCI function, from the bus if it is there, else from the device tree; then what the graphics class has."""
    on_bus = [item for item in listed(base / "bus/pci/devices") if _FUNCTION.fullmatch(item.name)]
    yield from ((item.name, item) for item in on_bus)
    if not on_bus:
        for folder, names, _ in os.walk(base / "devices"):
            yield from ((name, Path(folder, name)) for name in names if _FUNCTION.fullmatch(name))
    for card in listed(base / "class/drm"):
        device = card / "device"
        path = path_of(os.path.realpath(device)) or path_of(link_text(device))
        slot = path[-1] if path else uevent(device, "PCI_SLOT_NAME")
        if _FUNCTION.fullmatch(slot):
            yield slot, Path(os.path.realpath(device))


# -- files --------------------------------------------------------------------------------------------------


def raw(path: Path) -> str | None:
    """The text; "" when the kernel refuses to read it; None when there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ""


def read(path: Path) -> str | None:
    """The text, None when there is none."""
    return raw(path) or None


def first_number(paths: Sequence[Path], default: int = -1) -> int:
    """The first of these files that holds a number."""
    for path in paths:
        try:
            return int(raw(path) or "", 0)
        except ValueError:
            continue
    return default


def listed(where: Path) -> list[Path]:
    """What is in this directory, empty without one."""
    try:
        return sorted(where.iterdir(), key=lambda item: natural(item.name))
    except OSError:
        return []


def link_text(path: Path) -> str:
    """What this link says, whether or not it leads anywhere."""
    try:
        return str(path.readlink())
    except OSError:
        return ""


def target(path: Path) -> str:
    """The name that a link points at (it may dangle), or that a file holds."""
    return Path(link_text(path)).name or (read(path) or "" if path.is_file() else "")


def uevent(entry: Path, key: str) -> str:
    """A value of the device's uevent file."""
    for line in (read(entry / "uevent") or "").splitlines():
        name, _, value = line.partition("=")
        if name == key:
            return value.strip()
    return ""


def path_of(text: str) -> tuple[str, ...]:
    """The PCI part of a path in the device tree: root bus, bridges, function."""
    parts = [part for part in text.split("/") if _FUNCTION.fullmatch(part) or _ROOT_BUS.fullmatch(part)]
    return tuple(parts) if parts and _FUNCTION.fullmatch(parts[-1]) else ()
