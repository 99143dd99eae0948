"""`python -P -m supervisor.copies RUN_DIR KIND EPOCH PARENT`: one turn of the copier, started by the supervisor.

It ends when the process PARENT, which started it, ends; 0: when it is done.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from contract.config import ConfigError, read_resolved
from contract.copies.report import lock_path
from contract.copies.target import Kind
from contract.files import FileLock
from contract.layout import Root, RunDir
from supervisor.copies.copier import Clocks, Copier

BUSY = 75
"""Exit code: another copier of this run and kind is at work."""
_PR_SET_PDEATHSIG = 1
_IOPRIO_SET = 251  # x86-64's number of the call; elsewhere the process keeps its priority
_IDLE_CLASS = 3 << 13


class OvertakenError(SystemExit):
    """A newer supervisor has copiers of its own."""


def main(arguments: Sequence[str]) -> int:
    """0: copied, or nothing to do; 1: failed, see the report; 75: somebody else does it."""
    run, kind = RunDir(path=Path(arguments[0])), Kind(arguments[1])
    epoch, parent = int(arguments[2]), int(arguments[3])
    _stay_in_the_background(parent)
    next_epoch = Root(path=run.path.parent).supervisor(os.getuid()).epoch(epoch + 1)

    def guard() -> None:
        if next_epoch.exists():
            raise OvertakenError(BUSY)

    run.copies.mkdir(exist_ok=True)
    lock = FileLock(lock_path(run, kind))
    if not lock.acquire(f"pid {os.getpid()}, epoch {epoch}\n"):
        return BUSY
    guard()
    try:
        config = read_resolved(run.config)
    except ConfigError as error:
        sys.stderr.write(f"copier: {error}\n")
        return 1
    clocks = Clocks(utc=time.time, monotonic=time.monotonic, wait=time.sleep)
    return 0 if Copier(run, kind, config, clocks, guard).turn() else 1


def _stay_in_the_background(parent: int) -> None:
    """Lowest priority for processor and disk; an end with the supervisor, whose next one starts afresh."""
    libc = ctypes.CDLL(None, use_errno=True)
    if parent:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(BUSY)
    with contextlib.suppress(OSError):
        os.nice(19)
    if os.uname().machine == "x86_64":
        libc.syscall(_IOPRIO_SET, 1, 0, _IDLE_CLASS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
