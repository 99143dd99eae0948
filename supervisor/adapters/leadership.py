"""One supervisor per user and root: a lock, an epoch and a counter (design rule 4).

The flock says who lives on this machine. The counter says it across machines, where flock may not reach. The
epoch makes a holder harmless that was stopped, overtaken and wakes up: it is checked before every effect.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract import files
from contract.layout import Root, SupervisorDir
from slurm.processes import boot_id

STILL_S = 60.0
_POLL_S = 0.5


class RefusedError(RuntimeError):
    """Somebody else supervises this root; the message says who, and what can be done."""


class OvertakenError(RuntimeError):
    """A newer supervisor took over; nothing may be written any more."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds (or held) the lock, as the lock file says.

    `command`: a person's command that does its work alone and then lets go (`pause`); "" is a supervisor.
    """

    host: str
    boot: str
    pid: int
    epoch: int
    since: float
    command: str = ""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        who = f"`ciuic {self.command}`, " if self.command else ""
        return f"{who}pid {self.pid} on {self.host} since {since}"


def read_holder(path: Path) -> Holder | None:
    """The content of the lock file; None when there is none that can be understood."""
    try:
        value: Any = files.read_json(path)
        if value is None:
            return None
        return Holder(**{name: value[name] for name in Holder.__annotations__ if name in value})
    except (ValueError, KeyError, TypeError):
        return None


class Leadership:
    """Held from `take` to `release`."""

    def __init__(self, place: SupervisorDir, lock: files.FileLock, holder: Holder) -> None:
        self._place, self._lock, self.holder = place, lock, holder
        self._counter = 0
        self._beat = os.open(place.beat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.beat()

    @property
    def epoch(self) -> int:
        return self.holder.epoch

    def beat(self) -> None:
        """Move the counter: we are alive."""
        self._counter += 1
        os.pwrite(self._beat, f"{self._counter:020d}\n".encode(), 0)
        os.fsync(self._beat)

    def holds(self) -> bool:
        """Whether we are still the newest: the lock file names us, and nobody created the next epoch."""
        if self._place.epoch(self.epoch + 1).exists():
            return False
        return read_holder(self._place.lock) == self.holder

    def check(self) -> None:
        """Before every effect.

        Raises:
            OvertakenError: a newer supervisor took over (or the lock file is gone).
        """
        if self.holds():
            return
        newest = read_holder(self._place.epoch(self.epoch + 1)) or read_holder(self._place.lock)
        who = f"the supervisor with {newest}" if newest else "nobody known: the lock file cannot be read"
        raise OvertakenError(
            f"epoch {self.epoch} was overtaken by {who}; this supervisor does nothing any more"
        )

    def release(self) -> None:
        """A clean end: without a beat the next one need not wait."""
        if self.holds():
            self._place.beat.unlink(missing_ok=True)
        os.close(self._beat)
        self._lock.release()


def take(
    root: Root,
    *,
    takeover: bool = False,
    command: str = "",
    patience_s: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], object] = time.sleep,
    still_s: float = STILL_S,
) -> Leadership:
    """Become the supervisor of this root and user; for the time of one command where it is named.

    `patience_s`: for so long a command of somebody else is waited for, which `say` is told; a supervisor never ends by
    itself.

    Raises:
        RefusedError: somebody else is.
    """
    place = root.supervisor(os.getuid())
    place.path.mkdir(parents=True, exist_ok=True)
    lock = files.FileLock(place.lock)
    _acquire(root, lock, patience_s, say, wait)
    try:
        former = read_holder(place.lock)
        if former is not None and not takeover and former.boot != boot_id():
            _wait_until_still(root, place, former, wait, still_s)
        return _with_next_epoch(root, place, lock, command, clock())
    except BaseException:
        lock.release()
        raise


def current_holder(root: Root) -> Holder | None:
    """Who supervises this root now, None when nobody on this machine holds the lock. Changes nothing."""
    place = root.supervisor(os.getuid())
    try:
        return read_holder(place.lock) if files.lock_is_held(place.lock) else None
    except OSError:
        return None


def _wait_until_still(
    root: Root, place: SupervisorDir, former: Holder, wait: Callable[[float], object], still_s: float
) -> None:
    """The former holder was on another host (or before a boot): its flock may not reach us, its counter does.

    The time is counted in our own waits, never by the other host's clock. No counter: it ended cleanly.
    """
    first, waited = _counter(place), 0.0
    while (now := _counter(place)) and waited < still_s:
        wait(_POLL_S)
        waited += _POLL_S
        if now != first:
            raise RefusedError(
                _alive_sentence(root, former)
                + ". Its lock cannot be seen from here; with --takeover this one takes over"
            )


def _acquire(
    root: Root,
    lock: files.FileLock,
    patience_s: float,
    say: Callable[[str], None],
    wait: Callable[[float], object],
) -> None:
    """Take the lock, after waiting for a command where there is patience."""
    waited, told = 0.0, False
    while not lock.acquire():
        holder = read_holder(lock.path)
        # Whoever has just taken it has not written its name yet: the first one read may be its predecessor's.
        by_command = waited == 0 or (holder is not None and holder.command)
        if waited >= patience_s or not by_command:
            raise RefusedError(_alive_sentence(root, holder))
        if waited and not told:
            say(f"{_alive_sentence(root, holder)}; waits for its end")
            told = True
        wait(_POLL_S)
        waited += _POLL_S


def _counter(place: SupervisorDir) -> bytes:
    return files.read_bytes(place.beat) or b""


def _with_next_epoch(
    root: Root, place: SupervisorDir, lock: files.FileLock, command: str, now: float
) -> Leadership:
    number = 1 + max((_number(path.name) for path in place.path.iterdir()), default=0)
    holder = Holder(
        host=socket.gethostname(), boot=boot_id(), pid=os.getpid(), epoch=number, since=now, command=command
    )
    text = json.dumps(asdict(holder)).encode()
    if not files.create_file(place.epoch(number), text + b"\n"):
        raise RefusedError(f"another supervisor of {root.path} started in the same moment; try again")
    descriptor = os.open(
        place.lock, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    )  # in place: the flock is on this inode
    try:
        os.write(descriptor, text)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Leadership(place, lock, holder)


def _number(name: str) -> int:
    digits = name.removeprefix("epoch-")
    return int(digits) if digits != name and digits.isdecimal() else 0


def _alive_sentence(root: Root, holder: Holder | None) -> str:
    who = str(holder) if holder else "a process that has not written its name yet"
    if holder and holder.command:
        return f"{root.path} is in the hands of {who}"
    return f"a supervisor of {root.path} is already running: {who}"
