"""Looks at this node before it trains, in a process of its own: a driver or a file server may not answer.

python -P -m slurm.agent.preflight_child ATTEMPT_DIR NODE GPUS DEVICES      # one line of JSON; DEVICES "-": all, "" none
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contract.states import ExitCode
from slurm.agent import devices
from slurm.node.preflight import Figures, Foreign, Shared, judge

_GPUS_S = 30.0
_WRITES = 3


def probe_directory(directory: Path, node: str, clock: Callable[[], float] = time.time) -> Shared:
    """Write, sync, read back and remove a small file, a few times. `clock` is what the file server's is held against."""
    path = directory / f".preflight-{node}"
    content = os.urandom(64)
    taken: list[float] = []
    offset: float | None = None
    try:
        for _ in range(_WRITES):
            begun, begun_at = time.monotonic(), clock()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            taken.append(time.monotonic() - begun)
            offset = path.stat().st_mtime - (begun_at + clock()) / 2
        if path.read_bytes() != content:
            return Shared(problem=f"{path} reads back otherwise than it was written")
        path.unlink()
    except OSError as error:
        return Shared(problem=f"{error.filename or path}: {error.strerror}")
    return Shared(write_s=statistics.median(taken), offset_s=offset)


def _memory() -> Mapping[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}


def _space() -> dict[str, int]:
    found = {}
    for place in dict.fromkeys(("/dev/shm", tempfile.gettempdir())):  # noqa: S108 - where worker pages are
        try:
            found[place] = shutil.disk_usage(place).free
        except OSError:
            found[place] = 0
    return found


def _ours(gpus: Sequence[Mapping[str, Any]], allowed: str) -> list[Mapping[str, Any]]:
    """Those that this job may use."""
    if allowed == "-":
        return list(gpus)
    names = set(allowed.split(","))
    return [gpu for gpu in gpus if str(gpu["index"]) in names or gpu.get("uuid") in names]


def look(directory: Path, node: str, gpus: int, allowed: str) -> Figures:
    """Everything that is judged."""
    found: list[Mapping[str, Any]] = []
    problem = ""
    if gpus:
        try:
            found = _ours(devices.ask(seconds=_GPUS_S), allowed)
        except devices.DevicesError as error:
            problem = str(error)
    memory = _memory()
    return Figures(
        gpus_wanted=gpus,
        gpus=found,
        gpus_problem=problem,
        foreign=[
            Foreign(gpu=gpu["index"], pid=one["pid"], mib=one["mib"], name=_name(one["pid"]))
            for gpu in found
            for one in gpu.get("processes", ())
        ],
        memory_free=memory.get("MemAvailable"),
        memory=memory.get("MemTotal"),
        space=_space(),
        shared=probe_directory(directory, node),
    )


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def main(arguments: Sequence[str]) -> int:
    """Print what speaks against this node."""
    directory, node, gpus, allowed = arguments
    seen = look(Path(directory), node, int(gpus), allowed)
    facts = {"write_ms": round(seen.shared.write_s * 1e3, 1), "offset_s": seen.shared.offset_s}
    sys.stdout.write(json.dumps({**asdict(judge(seen)), "facts": facts}) + "\n")
    return ExitCode.FINISHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
