"""The newest valid checkpoint and the resume points of a run, read so that a look costs only what changed."""

from dataclasses import replace
from pathlib import Path

from contract.files import read_json
from contract.layout import RunDir, parse_checkpoint_name
from contract.manifest import NAME, Checkpoint, directories, examine, in_lineage
from supervisor.core.observation import CheckpointLook

_Stamp = tuple[int, int]  # mtime (ns) and size of the manifest
_OLDER = 4  # a roll-back may need one of them


class ResumeReader:
    """(attempt, generation) → step at which it resumed. A record is created once and never changes."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._found: dict[tuple[int, int], int] = {}
        self._restored: dict[tuple[int, int], str] = {}
        self._first = True

    def look(self, attempt: int) -> dict[tuple[int, int], int]:
        """All records. After the first look only the newest attempt can have new ones."""
        pattern = "*" if self._first else self._run.attempt(attempt).path.name
        for path in self._run.attempts.glob(f"{pattern}/resume-g*.json"):
            key = (int(path.parent.name), int(path.stem.removeprefix("resume-g")))
            if key in self._found:
                continue
            record = read_json(path)
            if record is not None and isinstance(record.get("step"), int):
                self._found[key] = record["step"]
                self._restored[key] = str(record.get("restored_from", ""))
        self._first = False
        return self._found

    def restored_from(self, at: tuple[int, int]) -> str:
        """The place whose copy this generation brought back, "" when it did not."""
        return self._restored.get(at, "")


class CheckpointReader:
    """Shallow check of the newest checkpoints. A manifest that has not changed is not examined again."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._known: dict[str, tuple[_Stamp | None, Checkpoint]] = {}

    def look(self, resumes: dict[tuple[int, int], int]) -> CheckpointLook | None:
        """The newest valid one of the lineage, and the steps of a few before it."""
        known, self._known = self._known, {}
        found: list[CheckpointLook] = []
        for directory in directories(self._run):
            step, attempt, generation = parse_checkpoint_name(directory.name) or (0, 0, 0)
            if not in_lineage(step, (attempt, generation), resumes):
                continue
            stamp = _stamp(directory / NAME)
            before = known.get(directory.name)
            checkpoint = before[1] if before and before[0] == stamp else examine(directory, deep=False)
            self._known[directory.name] = (stamp, checkpoint)
            if checkpoint.valid:
                found.append(
                    CheckpointLook(step=step, attempt=attempt, generation=generation, path=str(directory))
                )
            if len(found) > _OLDER:
                break
        return replace(found[0], older=tuple(item.step for item in found[1:])) if found else None


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size)
