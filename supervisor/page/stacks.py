"""Where the ranks stood at the newest failure whose evidence was kept, in groups of equals. Files, read once."""

from typing import Any

from contract.evidence import evidence_nodes, read_evidence
from contract.history import AttemptHistory, GenerationHistory, History
from contract.layout import RunDir, by_number
from supervisor.core.stacks import Group, groups, some_ranks

_NODES, _GROUPS = 256, 24


class Stacks:
    """Keeps what it read until there is a newer failure."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._of: tuple[int, int, int] = (0, 0, 0)
        self._found: dict[str, Any] | None = None

    def look(self, history: History) -> dict[str, Any] | None:
        """The groups, the odd ones first; None while no evidence was kept."""
        newest = _newest(history)
        if newest is None:
            return None
        attempt, generation = newest
        kept = generation.evidence
        of = (attempt.number, generation.number, len(kept.nodes) if kept else 0)
        if of != self._of:
            self._found, self._of = self._read(*of[:2]), of
        return self._found

    def _read(self, attempt: int, generation: int) -> dict[str, Any]:
        place = self._run.attempt(attempt).evidence(generation)
        workers = []
        for node in sorted(evidence_nodes(place), key=by_number)[:_NODES]:
            try:
                found = read_evidence(place, node)
            except (OSError, ValueError):  # it stays in the directory for people
                continue
            workers += [worker for worker in found.workers if worker.os_state] if found else []
        return {
            "of": f"{attempt}.{generation}",
            "groups": [_row(group) for group in reversed(groups(workers))][:_GROUPS],
        }


def _row(group: Group) -> list[Any]:
    """[how many, which, function, place, phase where no stack tells, whether a signal has stopped them]."""
    return [
        len(group.ranks),
        some_ranks(group.ranks).removeprefix("ranks ").removeprefix("rank "),
        group.doing,
        group.where,
        group.phase,
        group.stopped,
    ]


def _newest(history: History) -> tuple[AttemptHistory, GenerationHistory] | None:
    for attempt in reversed(history.attempts):
        for generation in reversed(attempt.generations):
            if generation.evidence is not None:
                return attempt, generation
    return None
