"""What is installed: versions against what ciuic asks for, and operators that would be compiled in a start."""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from contract.config import RunConfig
from supervisor.doctor.finding import Finding, State, ok, skipped

_TRAINING = ("torch", "deepspeed", "transformers")
_NCCL = re.compile(r"nvidia-nccl-cu\d+\Z")
_OPERATOR = "cpu_adam"


@dataclass(frozen=True, kw_only=True)
class PackagesSeen:
    """`versions`: by name. `wanted`: by name the least version, as ciuic's own metadata says.

    `verbs`: file of the library through which programs reach RDMA devices, "" where there is none.
    """

    versions: Mapping[str, str]
    wanted: Mapping[str, str]
    python: str
    operators: str
    built: bool
    verbs: str = ""


def measure_packages() -> PackagesSeen:
    """From the metadata of installed packages: torch is not imported."""
    versions = {(item.metadata["Name"] or "").lower(): item.version for item in metadata.distributions()}
    try:
        asked = metadata.requires("ciuic") or []
    except metadata.PackageNotFoundError:
        asked = []
    found = [re.match(r"([\w.-]+)>=([\d.]+)", line) for line in asked]
    extensions = Path(sys.prefix) / "share" / "ciuic" / "torch_extensions"
    return PackagesSeen(
        versions=versions,
        wanted={match[1].lower(): match[2] for match in found if match},
        python=sys.prefix,
        operators=str(extensions),
        built=any(extensions.rglob(f"{_OPERATOR}.so")),
        verbs=_verbs(),
    )


def _verbs() -> str:
    """As the loader finds it; its real name has its version."""
    try:
        listed = subprocess.run(
            ["ldconfig", "-p"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"libibverbs\.so\.1 .*=> (\S+)", listed)
    return Path(found[1]).resolve().name if found else ""


def judge_packages(seen: PackagesSeen, config: RunConfig | None) -> list[Finding]:
    """Missing training packages are no fault of a machine that only supervises."""
    foreign = config is not None and bool(config.job.command)
    found = [_package(name, seen, foreign=foreign) for name in _TRAINING]
    nccl = sorted(f"{name} {version}" for name, version in seen.versions.items() if _NCCL.match(name))
    found.append(
        ok("packages.nccl", ", ".join(nccl))
        if nccl
        else skipped("packages.nccl", "none as a package; runs without GPUs use Gloo")
    )
    verbs = seen.verbs or "no libibverbs.so.1; NCCL then reaches no RDMA device and uses sockets"
    found.append((ok if seen.verbs else skipped)("packages.rdma", verbs))
    return [*found, _operators(seen)]


def _package(name: str, seen: PackagesSeen, *, foreign: bool) -> Finding:
    version, least = seen.versions.get(name, ""), seen.wanted.get(name, "")
    if not version:
        if foreign:
            return skipped(
                f"packages.{name}", "not in this environment; the recipe runs a program of its own"
            )
        return Finding(
            id=f"packages.{name}",
            state=State.WARN,
            what=f"not installed in {seen.python}",
            why="ciuic's trainer needs it on every node (not where only the supervisor runs)",
            fix="pip install 'ciuic[train]' into the environment that the nodes use",
        )
    if least and _numbers(version) < _numbers(least):
        return Finding(
            id=f"packages.{name}",
            state=State.WARN,
            what=f"{version}, {least} or later is wanted",
            why="older versions are not tested with ciuic's trainer",
            fix=f"pip install '{name}>={least}'",
        )
    return ok(f"packages.{name}", version)


def _operators(seen: PackagesSeen) -> Finding:
    if "deepspeed" not in seen.versions:
        return skipped("packages.operators", "no DeepSpeed here")
    if seen.built:
        return ok("packages.operators", f"{_OPERATOR} is built in {seen.operators}")
    return Finding(
        id="packages.operators",
        state=State.WARN,
        what=f"{_OPERATOR} is not built in {seen.operators}",
        why="with it the update of offloaded weights runs in DeepSpeed's own kernel; without it torch's is used",
        fix=f"TORCH_EXTENSIONS_DIR={seen.operators} {seen.python}/bin/python -P -m trainer.ops",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
