"""The one module of the contract that does I/O: the few ways in which shared files are written and read.

Writers fsync, because on a network file system others see data only then. Readers open afresh each time.
"""

import errno
import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any


def sync_directory(path: Path) -> None:
    """Make names created or removed in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_aside(path: Path, data: bytes) -> Path:
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return aside


def replace_file(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all; readers see the old content or the new."""
    aside = _write_aside(path, data)
    try:
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create_file(path: Path, data: bytes) -> bool:
    """Create `path` with this content, exclusively. False if it exists already (then nothing changes)."""
    aside = _write_aside(path, data)
    try:
        os.link(aside, path)  # link, not rename: it fails when the name is taken, also over NFS
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def replace_json(path: Path, value: dict[str, Any]) -> None:
    """`replace_file` with JSON."""
    replace_file(path, json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def create_json(path: Path, value: dict[str, Any]) -> bool:
    """`create_file` with JSON."""
    return create_file(path, json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def read_bytes(path: Path) -> bytes | None:
    """The content, or None when the file is not there. Other errors are raised: absent is not unreadable."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:  # replaced on another host between look-up and read: once more
            return path.read_bytes() if path.exists() else None
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file, None when the file is not there.

    Raises:
        ValueError: the content is not one JSON object (the message names the file).
    """
    data = read_bytes(path)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: a JSON object was expected, this is a {type(value).__name__}")  # noqa: TRY004
    return value


class FileLock:
    """An flock on a file of its own, held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def fileno(self) -> int:
        """The descriptor that holds it, to be passed to a child: then the lock lives as long as either of us."""
        if self._descriptor is None:
            raise ValueError(f"{self.path}: the lock is not held")
        return self._descriptor

    def acquire(self, text: str = "") -> bool:
        """Take the lock without waiting. True if we hold it now; `text` (who we are) becomes the content."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            raise
        self._descriptor = descriptor
        if text:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
            os.fsync(descriptor)
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_is_held(path: Path) -> bool:
    """Whether somebody (not this process) holds the flock on this file alone. A missing file is not held."""
    return _refused(path, fcntl.LOCK_SH)


def lock_is_shared(path: Path) -> bool:
    """Whether somebody holds this flock in any way, alone or with others. A missing file is not held."""
    return _refused(path, fcntl.LOCK_EX)


def _refused(path: Path, kind: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return True
        raise
    finally:
        os.close(descriptor)
    return False
