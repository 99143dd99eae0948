"""Stacks of a process that may be stuck anywhere: by py-spy from outside, else by faulthandler from inside."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from contract.evidence import STACK_SIGNAL, Frame, Thread

KEPT_THREADS = 24
KEPT_FRAMES = 48
_STOPPED = frozenset("Tt")
_SIGNAL_BIT = 1 << (STACK_SIGNAL - 1)
_TIMEOUT = "no answer within {:.1f} s"
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+).*\(most recent call first\):")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


class StacksError(Exception):
    """Why there are none, in words."""


def py_spy() -> str:
    """The program: beside this interpreter, else on PATH; "" when it is not installed."""
    ours = Path(sys.executable).parent / "py-spy"
    return str(ours) if ours.is_file() else shutil.which("py-spy") or ""


def by_py_spy(pid: int, os_state: str, *, seconds: float) -> tuple[Thread, ...]:
    """Python stacks. A stopped process cannot be paused by a debugger, and need not be.

    Raises:
        StacksError: it could not be done in so many seconds.
    """
    still = ["--nonblocking"] if os_state in _STOPPED else []
    text = _run([py_spy(), "dump", "--pid", str(pid), "--json", "--full-filenames", *still], seconds)
    try:
        return parse_py_spy(text)
    except (ValueError, KeyError, TypeError) as error:
        raise StacksError(f"py-spy said what is not understood: {error}") from error


def native(pid: int, *, seconds: float) -> str:
    """Stacks with the frames of native code, as text for people.

    Raises:
        StacksError: it could not be done in so many seconds.
    """
    return _run([py_spy(), "dump", "--pid", str(pid), "--native"], seconds)


def by_faulthandler(pid: int, path: Path, *, seconds: float) -> tuple[Thread, ...]:
    """Ask the process itself, which writes them into this file of its own.

    Raises:
        StacksError: it is not prepared, or did not answer in so many seconds.
    """
    if not _catches(pid):
        raise StacksError("it does not listen for the signal")
    before = path.stat().st_size if path.exists() else 0
    os.kill(pid, STACK_SIGNAL)
    deadline = time.monotonic() + seconds
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.02)
        last, size = size, path.stat().st_size
        if before < size == last:
            return parse_faulthandler(path.read_bytes()[before:].decode(errors="replace"))
    raise StacksError(_TIMEOUT.format(seconds))


def parse_py_spy(text: str) -> tuple[Thread, ...]:
    """Threads of `py-spy dump --json`, the main one first.

    Raises:
        ValueError, KeyError, TypeError: it is something else.
    """
    found = json.loads(text)
    main = [item for item in found if item["os_thread_id"] == item["pid"]]
    rest = [item for item in found if item["os_thread_id"] != item["pid"]]
    return tuple(
        Thread(
            name=str(item["thread_name"] or item["os_thread_id"]),
            active=bool(item["active"]),
            frames=tuple(
                Frame(name=str(frame["name"]), file=str(frame["filename"]), line=int(frame["line"]))
                for frame in item["frames"][:KEPT_FRAMES]
            ),
        )
        for item in (*main, *rest)[:KEPT_THREADS]
    )


def parse_faulthandler(text: str) -> tuple[Thread, ...]:
    """Threads of one faulthandler dump. It writes the newest first and the main thread last."""
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if start := _THREAD.match(line):
            found.append((start[1], []))
        elif found and (frame := _FRAME.match(line)):
            number = int(frame[2]) if frame[2].isdecimal() else 0
            found[-1][1].append(Frame(name=frame[3], file=frame[1], line=number))
    return tuple(
        Thread(name=name, frames=tuple(frames[:KEPT_FRAMES]))
        for name, frames in reversed(found[-KEPT_THREADS:])
    )


def _run(command: list[str], seconds: float) -> str:
    if not command[0]:
        raise StacksError("py-spy is not installed")
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise StacksError(_TIMEOUT.format(seconds)) from None
    except OSError as error:
        raise StacksError(str(error)) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        causes = [
            line.split(":", 1)[-1].strip() for line in said.splitlines() if re.match(r"\s+\d+: |Error", line)
        ]
        hint = "; ptrace is not allowed here" if "ermission" in said or "EPERM" in said else ""
        raise StacksError(f"py-spy: {'; '.join(causes[:3])[:200] or f'exit code {done.returncode}'}{hint}")
    return done.stdout.decode(errors="replace")


def _catches(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) & _SIGNAL_BIT)
