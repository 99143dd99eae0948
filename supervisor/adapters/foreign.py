"""What can be seen of a program that is not ours: where it went on, by its marks; its checkpoints, by a configured rule."""

import re
from collections.abc import Sequence
from glob import iglob
from pathlib import Path

from contract.config.checkpoint import Checkpoint as Settings
from contract.exits import WorkerExit
from contract.states import Phase
from supervisor.core.observation import CheckpointLook, NodeSeen

_At = tuple[int, int]  # attempt and generation
_BEFORE = frozenset({Phase.UNKNOWN, Phase.START, Phase.COMPILE, Phase.LOAD})
_OLDER = 4


class ForeignProgram:
    """Remembers, from look to look, what our own trainer would have written down."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._begun: dict[_At, int] = {}
        self._first = True
        self._stamps: dict[Path, tuple[int, int] | None] = {}
        self._complete: dict[Path, _At] = {}

    def resumed(self, at: _At, members: Sequence[str], nodes: Sequence[NodeSeen]) -> int | None:
        """The step of the generation's first marks, once every worker has marked one; None before."""
        if at not in self._begun:
            beats = [seen.beat for seen in nodes if seen.beat is not None and seen.beat.generation == at[1]]
            workers = [worker for beat in beats for worker in beat.workers]
            there = {beat.node for beat in beats if beat.workers}
            if not members or not set(members) <= there or any(item.phase in _BEFORE for item in workers):
                return None
            self._begun[at] = min(worker.step for worker in workers)
        return self._begun[at]

    def checkpoint(self, settings: Settings, at: _At, *, written: bool) -> CheckpointLook | None:
        """The one with the highest step among those that did not change between two looks.

        The first look takes all, and so does one after which nobody writes any more (`written`): what a program saved
        in its last moment counts when its end does.
        """
        first, self._first = self._first or written, False
        found: list[CheckpointLook] = []
        places = iglob(str(self._run / settings.foreign_glob), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
        for path in sorted(map(Path, places)):
            step = _step(settings.foreign_step, str(path))
            if step is None:
                continue
            stamp = _stamp(path)
            before = self._stamps.get(path)
            self._stamps[path] = stamp
            if stamp is None or (before != stamp and not first):
                continue
            attempt, generation = self._complete.setdefault(path, at)
            found.append(CheckpointLook(step=step, attempt=attempt, generation=generation, path=str(path)))
        found.sort(key=lambda item: item.step, reverse=True)
        if not found:
            return None
        newest, older = found[0], tuple(item.step for item in found[1 : 1 + _OLDER])
        return CheckpointLook(
            step=newest.step,
            attempt=newest.attempt,
            generation=newest.generation,
            path=newest.path,
            older=older,
        )


def written(at: _At, nodes: Sequence[NodeSeen], exits: Sequence[WorkerExit]) -> bool:
    """Whether every worker of the generation that a beat tells of has ended."""
    gone = {item.rank for item in exits}
    beats = [seen.beat for seen in nodes if seen.beat is not None]
    workers = [worker for beat in beats if (beat.attempt, beat.generation) == at for worker in beat.workers]
    return bool(workers) and all(item.exit_code is not None or item.rank in gone for item in workers)


def _step(pattern: str, path: str) -> int | None:
    found = list(re.finditer(pattern, path))
    return int(found[-1][1]) if found and found[-1][1].isdecimal() else None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:  # rotated away in this moment
        return None
    return (status.st_mtime_ns, status.st_size)
