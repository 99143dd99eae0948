"""Write a node's settings as root, remember what was there, put it back. The same files as prolog.sh and epilog.sh.

The state directory (on a tmpfs: what it remembers ends with the boot, like the settings themselves):
`saved` has a line `path, before, applied` (tabs between) for each value that was changed, written before the change;
`holders/` has a file for each job that needs the settings; `lock` is flocked by whoever works.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.node.settings import Setting, State, selected

STATE = Path("/run/ciuic/tuning")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became of one value. `problem` is "" when it is as it should be."""

    path: Path
    before: str
    after: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.before} → {self.after}" + (f": {self.problem}" if self.problem else "")


@dataclass(frozen=True, kw_only=True)
class _Saved:
    path: Path
    before: str
    applied: str

    def __str__(self) -> str:
        return f"{self.path}\t{self.before}\t{self.applied}"


def apply(settings: Sequence[Setting], state: Path, holder: str) -> list[Change]:
    """Set what is wrong. What is already remembered is not remembered anew: it may be our own value.

    Raises:
        OSError: the state directory cannot be written; nothing was changed.
    """
    with _held(state):
        (state / "holders").mkdir(exist_ok=True)
        (state / "holders" / holder).touch()
        saved = {item.path: item for item in _read_saved(state)}
        todo = [(path, item.value) for item in settings if item.state is State.WRONG for path in item.paths]
        for path, value in todo:
            with contextlib.suppress(OSError):  # what cannot be read is told when it is written
                saved.setdefault(path, _Saved(path=path, before=_value(path), applied=value))
        _write_saved(state, list(saved.values()))
        return [_write(path, value) for path, value in todo]


def restore(state: Path, holder: str) -> tuple[list[Change], list[str]]:
    """Put everything back, unless other jobs still need it: their names are the second result.

    A value that somebody else has changed since stays as it is.

    Raises:
        OSError: the state directory cannot be written.
    """
    if not state.is_dir():
        return [], []
    with _held(state):
        (state / "holders" / holder).unlink(missing_ok=True)
        others = sorted(item.name for item in (state / "holders").glob("*"))
        if others:
            return [], others
        saved = _read_saved(state)
        changes = [_put_back(item) for item in saved]
        kept = [item for item, change in zip(saved, changes, strict=True) if change.problem]
        _write_saved(state, [item for item in kept if _still_ours(item)])
        return changes, []


def _put_back(item: _Saved) -> Change:
    try:
        now = _value(item.path)
    except OSError as error:
        return Change(path=item.path, before=item.applied, after="?", problem=str(error))
    if now != item.applied:
        problem = "" if now == item.before else f"changed since by somebody else, {item.before} not put back"
        return Change(path=item.path, before=now, after=now, problem=problem)
    return _write(item.path, item.before)


def _still_ours(item: _Saved) -> bool:
    try:
        return _value(item.path) == item.applied
    except OSError:
        return item.path.exists()


def _write(path: Path, value: str) -> Change:
    before = "?"
    try:
        before = _value(path)
        path.write_text(value, encoding="ascii")
        after = _value(path)
    except OSError as error:
        return Change(path=path, before=before, after=before, problem=error.strerror or str(error))
    return Change(
        path=path, before=before, after=after, problem="" if after == value else f"{value} did not stay"
    )


def _value(path: Path) -> str:
    return selected(path.read_text(encoding="ascii"))


def _read_saved(state: Path) -> list[_Saved]:
    try:
        lines = (state / "saved").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    parts = [line.split("\t") for line in lines if line.count("\t") == 2]
    return [_Saved(path=Path(path), before=before, applied=applied) for path, before, applied in parts]


def _write_saved(state: Path, saved: Sequence[_Saved]) -> None:
    """Whole or not at all: a process that is killed here leaves the old file."""
    if not saved:
        (state / "saved").unlink(missing_ok=True)
        return
    aside = state / "saved.new"
    aside.write_text("".join(f"{item}\n" for item in saved), encoding="utf-8")
    aside.rename(state / "saved")


@contextlib.contextmanager
def _held(state: Path) -> Iterator[None]:
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
