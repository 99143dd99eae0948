"""Where the worker pages lie: shared memory of this node, one directory per generation."""

import contextlib
import os
from pathlib import Path

from contract.layout import RunDir, tag

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the directory of our user in it is private


def page_directory(run: RunDir, attempt: int, generation: int) -> Path:
    return _run_directory(run) / tag(attempt, generation)


def pages_of(run: RunDir, attempt: int, node: str) -> list[tuple[int, Path]]:
    """(local rank, page) of this node's workers in this attempt, of the newest generation that has any."""
    found: dict[int, Path] = {}
    for directory in sorted(_run_directory(run).glob(f"{tag(attempt, 0)[:-4]}*")):
        for path in directory.glob(f"{node}-*"):
            local_rank = path.name.removeprefix(f"{node}-")
            if local_rank.isdecimal():
                found[int(local_rank)] = path
    return sorted(found.items())


def make_page_directory(run: RunDir, attempt: int, generation: int) -> Path:
    """The directory for this generation's pages, closed to other users.

    Raises:
        PermissionError: somebody else has put a directory of that name there.
    """
    user = _user_directory()
    user.mkdir(mode=0o700, exist_ok=True)
    if user.stat().st_uid != os.getuid():
        raise PermissionError(f"{user} belongs to another user; have it removed")
    directory = page_directory(run, attempt, generation)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def remove_pages(run: RunDir, node: str, *, but: Path | None = None) -> None:
    """Remove this node's pages of all generations (other agents of a local run have theirs beside them)."""
    for directory in _run_directory(run).glob("a*-g*"):
        if directory == but:
            continue
        for page in directory.glob(f"{node}-*"):
            page.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            directory.rmdir()
    with contextlib.suppress(OSError):
        _run_directory(run).rmdir()


def _user_directory() -> Path:
    return _SHARED_MEMORY / f"ciuic-{os.getuid()}"


def _run_directory(run: RunDir) -> Path:
    return _user_directory() / run.run_id
