"""This machine: clock, stacks of running processes, and the settings that `ciuic tune` knows."""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from slurm.agent.stacks import StacksError, by_py_spy
from slurm.node.settings import Setting, read_settings
from slurm.node.settings import State as SettingState
from supervisor.doctor.finding import Finding, State, ok, skipped

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = 2**64 - 1
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_STACKS_S = 8.0


@dataclass(frozen=True, kw_only=True)
class MachineSeen:
    """`clock`: what adjtimex(2) returned, -1 when it may not be asked. `stacks`: why there were none, "" for some."""

    clock: int
    yama: str
    stacks: str
    settings: tuple[Setting, ...] = ()


def measure_machine() -> MachineSeen:
    """Reads, and lets py-spy look at this very process, as the agent does with a worker."""
    libc = ctypes.CDLL(None, use_errno=True)
    clock = libc.adjtimex(ctypes.create_string_buffer(512))
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYBODY), 0, 0, 0)
    try:
        by_py_spy(os.getpid(), "R", seconds=_STACKS_S)
        stacks = ""
    except StacksError as error:
        stacks = str(error)
    yama = _YAMA.read_text(encoding="ascii").strip() if _YAMA.exists() else ""
    return MachineSeen(clock=clock, yama=yama, stacks=stacks, settings=tuple(read_settings()))


def judge_machine(seen: MachineSeen) -> list[Finding]:
    """What was measured, in findings."""
    return [_clock(seen.clock), _stacks(seen), *map(_setting, seen.settings)]


def _clock(code: int) -> Finding:
    if code < 0:
        return skipped("machine.clock", "the kernel does not tell whether the clock is synchronised")
    if code != _UNSYNCHRONISED:
        return ok("machine.clock", "synchronised")
    return Finding(
        id="machine.clock",
        state=State.WARN,
        what="not synchronised",
        why="munge, and with it Slurm, refuses hosts that are 300 s apart; merged logs are out of order",
        fix="run chrony, ntpd or systemd-timesyncd (a container takes its host's clock: look there)",
    )


def _stacks(seen: MachineSeen) -> Finding:
    scope = f", Yama's ptrace_scope is {seen.yama}" if seen.yama else ""
    if not seen.stacks:
        return ok("machine.py-spy", f"reads the stacks of a running process{scope}")
    restricted = seen.yama in {"2", "3"}
    missing = "not installed" in seen.stacks
    return Finding(
        id="machine.py-spy",
        state=State.WARN,
        what=f"{seen.stacks}{scope}",
        why="without stacks the evidence of a hang is what a worker can still write by itself",
        fix="pip install py-spy"
        if missing
        else "as root: sysctl kernel.yama.ptrace_scope=1"
        if restricted
        else "a container needs the capability SYS_PTRACE",
    )


def _setting(item: Setting) -> Finding:
    name = "machine." + item.name.replace("transparent_hugepage/", "thp-").replace(" ", "-").replace("_", "-")
    match item.state:
        case SettingState.OK:
            return ok(name, item.found)
        case SettingState.WRONG:
            return Finding(
                id=name,
                state=State.WARN,
                what=f"{item.found}, wanted {item.wanted}",
                why=item.why,
                fix=item.fix,
            )
        case SettingState.ABSENT:
            return skipped(name, "not on this machine")
        case SettingState.UNKNOWN:
            return skipped(name, f"cannot be read {item.found}")
