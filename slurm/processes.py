"""Our processes on this machine, found through /proc: the only way to know them after a restart of everything."""

import contextlib
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from contract.layout import RunDir


class Role(StrEnum):
    """What a process of a local attempt is."""

    CONTROLLER = "controller"  # submitit's, starts the tasks
    TASK = "task"  # submitit's, about to become an agent
    AGENT = "agent"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One live process of an attempt."""

    pid: int
    role: Role


def boot_id() -> str:
    """Changes with every boot of this machine: pids of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def find(run: RunDir, attempt: int) -> list[Found]:
    """All live processes of this attempt that belong to our user. Zombies have no command line and are not found."""
    pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    return [Found(pid=pid, role=role) for pid in pids if (role := _role(pid, run, attempt))]


def end(run: RunDir, attempt: int, process: Found, number: signal.Signals) -> None:
    """Send a signal to this process, if it still is what it was (the pid cannot change hands in between)."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if _role(process.pid, run, attempt) is process.role:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _role(pid: int, run: RunDir, attempt: int) -> Role | None:
    try:
        place = Path(f"/proc/{pid}")
        if place.stat().st_uid != os.getuid():
            return None
        arguments = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return None
    folder = str(run.attempt(attempt).submission)
    match arguments[1:]:
        case ["-P", "-m", "slurm.agent", path, number] if path == str(run.path) and number == str(attempt):
            return Role.AGENT
        case [*_, "-m", "submitit.local._local", path] if path == folder:
            return Role.CONTROLLER
        case [*_, "-m", "submitit.core._submit", path] if path == folder:
            return Role.TASK
        case _:
            return None
