"""The shared root: does what the contract rests on hold there, and how long does it take."""

import contextlib
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from contract.files import FileLock, create_file, lock_is_held, replace_file
from supervisor.adapters.lag import Mount, is_network_kind, mount_of
from supervisor.doctor.finding import Finding, State, ok

_TRIES = 5
_SLOW_S = 0.25
_LITTLE = 50 << 30
_TOO_LITTLE = 1 << 30
_CLOCK_S = 5.0
_LATE = "it keeps attributes for up to 60 s, so a beat may be seen late"


@dataclass(frozen=True, kw_only=True)
class StorageSeen:
    """Seconds are medians. `problem`: what could not be done there; the rest is then not known."""

    root: str
    exists: bool
    mount: Mount
    problem: str = ""
    locks: bool = True
    links: bool = True
    fsync_s: float = 0.0
    rename_s: float = 0.0
    clock_s: float = 0.0
    free: int = 0
    free_inodes: int = 0
    inodes: int = 0


def measure_storage(root: Path) -> StorageSeen:
    """Writes one small directory beside the runs (in the nearest existing parent of a root to come), and removes it."""
    place = next(parent for parent in (root, *root.parents) if parent.is_dir())
    mount, exists = mount_of(place), place == root
    try:
        room = os.statvfs(place)
        with _folder(place) as folder:
            fsync_s, rename_s = _timed(lambda: _synced(folder)), _timed(lambda: _renamed(folder))
            replace_file(folder / "whole", b"x")
            return StorageSeen(
                root=str(root),
                exists=exists,
                mount=mount,
                locks=_locks(folder),
                links=_links(folder),
                fsync_s=fsync_s,
                rename_s=rename_s,
                clock_s=_clock(folder),
                free=room.f_bavail * room.f_frsize,
                free_inodes=room.f_favail,
                inodes=room.f_files,
            )
    except OSError as error:
        return StorageSeen(root=str(root), exists=exists, mount=mount, problem=str(error))


def judge_storage(seen: StorageSeen) -> list[Finding]:
    """What was measured, in findings."""
    if seen.problem:
        return [
            _place(seen),
            Finding(
                id="storage.write",
                state=State.FAIL,
                what=f"{seen.root}: {seen.problem}",
                why="the runs' directories, journals and checkpoints lie there",
                fix="give this user write access, mend the mount, or choose another place with --root",
            ),
        ]
    return [
        _place(seen),
        _locking(seen),
        _linking(seen),
        _latency("storage.fsync", "write and fsync of 4 KiB", seen.fsync_s),
        _latency("storage.rename", "rename", seen.rename_s),
        _clocks(seen.clock_s),
        _room(seen),
    ]


def _place(seen: StorageSeen) -> Finding:
    where = f"{seen.root}: {seen.mount.kind or 'unknown file system'}" + (
        "" if seen.exists else " (is made at the first submission)"
    )
    if not is_network_kind(seen.mount.kind):
        return Finding(
            id="storage.kind",
            state=State.OK,
            what=f"{where}, local",
            why="for runs on one machine; nodes of a cluster must all see this directory",
        )
    nfs = seen.mount.kind.startswith("nfs")
    return Finding(
        id="storage.kind",
        state=State.OK,
        what=f"{where}, shared",
        why=f"{_LATE}; the limits know it" if nfs else "",
    )


def _locking(seen: StorageSeen) -> Finding:
    options = set(seen.mount.options)
    local = sorted(options & {"localflock", "noflock", "nolock", "local_lock=all", "local_lock=flock"})
    if not seen.locks:
        return Finding(
            id="storage.lock",
            state=State.FAIL,
            what="a lock that one process holds is not seen by another",
            why="locks keep two supervisors, and two writers of one journal, apart",
            fix="mount with locks (Lustre: -o flock; NFS: without nolock, lockd running)",
        )
    if local:
        return Finding(
            id="storage.lock",
            state=State.WARN,
            what=f"locks work on this host only ({', '.join(local)})",
            why="a second supervisor on another host sees the first one's counter only, and takes 60 s to decide",
            fix="mount with locks for the whole cluster (Lustre: -o flock; NFS: without nolock and local_lock)",
        )
    return ok("storage.lock", "held across processes")


def _linking(seen: StorageSeen) -> Finding:
    if seen.links:
        return ok("storage.create", "exclusive creation works")
    return Finding(
        id="storage.create",
        state=State.FAIL,
        what="a name could be created twice, or no hard link can be made",
        why="epochs, claims and generations are names that exactly one process may create",
        fix="use a file system with hard links (NFS, Lustre, GPFS, any local one)",
    )


def _latency(id_: str, what: str, seconds: float) -> Finding:
    text = f"{what} takes {seconds * 1000:.1f} ms (median of {_TRIES})"
    if seconds <= _SLOW_S:
        return ok(id_, text)
    return Finding(
        id=id_,
        state=State.WARN,
        what=text,
        why="each node writes one such file a second, the supervisor several for a restart",
        fix="raise [monitor] beat_s, or put the root on a faster file system and only checkpoints on this one",
    )


def _clocks(seconds: float) -> Finding:
    if abs(seconds) <= _CLOCK_S:
        return ok("storage.clock", f"its server's clock is {seconds:+.1f} s from ours")
    return Finding(
        id="storage.clock",
        state=State.WARN,
        what=f"its server's clock is {seconds:+.1f} s from ours",
        why="ciuic compares counters, never clocks; but merged logs are out of order, and munge refuses after 300 s",
        fix="run chrony or ntpd on both",
    )


def _room(seen: StorageSeen) -> Finding:
    text = f"{seen.free / 2**30:.0f} GiB free"
    few = seen.inodes > 0 and seen.free_inodes < 10_000
    if seen.free >= _LITTLE and not few:
        return ok("storage.space", text)
    return Finding(
        id="storage.space",
        state=State.FAIL if seen.free < _TOO_LITTLE else State.WARN,
        what=f"{text}, {seen.free_inodes} files more" if few else text,
        why="a checkpoint takes about 14 bytes a parameter, and the old one stays until the new one is complete",
        fix="make room, or lower [checkpoint] keep_last",
    )


@contextlib.contextmanager
def _folder(place: Path) -> Iterator[Path]:
    folder = place / f".doctor-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()


def _timed(act: Callable[[], None]) -> float:
    taken = []
    for _ in range(_TRIES):
        began = time.monotonic()
        act()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def _synced(folder: Path) -> None:
    descriptor = os.open(folder / "synced", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, bytes(4096), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renamed(folder: Path) -> None:
    (folder / "from").touch()
    (folder / "from").rename(folder / "to")


def _locks(folder: Path) -> bool:
    """Whether a child process sees that we hold a lock."""
    lock = FileLock(folder / "lock")
    if not lock.acquire():
        return False
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if lock_is_held(lock.path) else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        lock.release()


def _links(folder: Path) -> bool:
    try:
        return create_file(folder / "once", b"1") and not create_file(folder / "once", b"2")
    except OSError:
        return False


def _clock(folder: Path) -> float:
    (folder / "stamp").write_bytes(b"x")
    return (folder / "stamp").stat().st_mtime - time.time()
