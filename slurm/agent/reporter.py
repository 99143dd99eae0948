"""The beat of this node: once a period, at once after a change, and never more often than the file system likes."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from contract.beat import Beat, BeatFile, WorkerBeat
from contract.states import AgentPhase

_LEAST_S = 0.05
_KEPT_NOTES = 8
_KEPT_ORDERS = 16


@dataclass(kw_only=True)
class Reporter:
    """Keeps what the next beat says; `changed` asks for one at once."""

    path: Path
    period_s: float
    beat: Beat
    changed: bool = True
    _written_at: float = float("-inf")
    _file: BeatFile | None = None
    _refused: int = 0
    _notes: list[str] = field(default_factory=list)

    def say(
        self, *, phase: AgentPhase, generation: int, ready_for: int, address: str, port: int, done: int | None
    ) -> None:
        """What the agent is at now."""
        self._take(
            replace(
                self.beat,
                phase=phase,
                generation=generation,
                ready_for=ready_for,
                address=address,
                port=port,
                done_code=done,
            )
        )

    def note(self, text: str) -> None:
        """Something that hides nowhere else; the newest few are kept."""
        self._notes = [*self._notes, text[:300]][-_KEPT_NOTES:]
        self._take(replace(self.beat, notes=tuple(self._notes)))

    def health(self, name: str, facts: Mapping[str, object]) -> None:
        """The newest figures of one part of the node."""
        self._take(replace(self.beat, health={**self.beat.health, name: dict(facts)}))

    def orders_done(self, ids: Iterable[str]) -> None:
        done = tuple(dict.fromkeys([*self.beat.orders_done, *ids]))[-_KEPT_ORDERS:]
        self._take(replace(self.beat, orders_done=done))

    def wait_s(self, now: float) -> float:
        """Seconds until the next beat is due."""
        return self._written_at + (_LEAST_S if self.changed else self.period_s) - now

    def write(self, workers: tuple[WorkerBeat, ...], usual: Mapping[str, float], now: float) -> None:
        """Write the beat, due or not. A file system that refuses it must not end the training: it is tried again."""
        self.beat = replace(self.beat, sequence=self.beat.sequence + 1, workers=workers, usual=usual)
        self.changed = False
        self._written_at = now
        try:
            if self._file is None:
                self._file = BeatFile(self.path)
            self._file.write(self.beat)
        except OSError as error:
            self._refused += 1
            self._notes = [*self._notes, f"{self._refused} beats could not be written: {error}"][
                -_KEPT_NOTES:
            ]
            self.beat = replace(self.beat, notes=tuple(self._notes))

    def _take(self, beat: Beat) -> None:
        self.changed = self.changed or beat != self.beat
        self.beat = beat


def first_beat(node: str, attempt: int, generation: int, host: str) -> Beat:
    return Beat(
        node=node,
        attempt=attempt,
        generation=generation,
        sequence=0,
        phase=AgentPhase.STARTING,
        pid=os.getpid(),
        host=host,
    )
