"""The pictures: of all runs, and of one with what its files tell besides the supervisor's last look."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from contract import events as ev
from contract.history import History
from contract.journal import JournalReader
from contract.layout import RunDir
from supervisor.core.lost_time import lost_time
from supervisor.page.growing import GrowingCurves
from supervisor.page.past import past
from supervisor.page.present import NOTHING, head, row
from supervisor.page.ranks import rank_map
from supervisor.page.stacks import Stacks
from supervisor.report.curves import Curves, Point
from supervisor.seen import RunSeen

_JOURNAL_BYTES = 4 << 20  # the newest events: some thousands
_EVENTS = 5000


def fleet(runs: Iterable[RunSeen]) -> dict[str, Any]:
    """A row for each run."""
    return {"rows": {seen.run: row(seen) for seen in runs}}


class RunPicture:
    """One run's picture; keeps what it has read."""

    def __init__(self, run: RunDir, breathe: Callable[[], None]) -> None:
        self._run = run
        self._curves = GrowingCurves(run, breathe)
        self._stacks = Stacks(run)
        self._reader: JournalReader | None = None
        self._events: list[ev.Event] = []
        self._past_of: History | None = None
        self._past: dict[str, Any] = {}

    @property
    def unfinished(self) -> bool:
        """Whether more of the metrics is to be read."""
        return self._curves.behind > 0

    def paint(self, seen: RunSeen) -> dict[str, Any]:
        """The picture of this look.

        Raises:
            OSError: a file of the run cannot be read.
        """
        history, shown = seen.history, seen.shown
        if history is not self._past_of:
            self._read_journal()
            at = seen.seen_at or history.state_at
            lost = lost_time(history, shown.observation if shown else NOTHING, at)
            self._past = past(history, self._events, lost)
            self._past_of = history
        newest = [item["digest"] for item in self._past["incidents"].values()][-1:]
        picture = {
            "head": head(seen, newest[0] if newest else None),
            **self._past,
            "stacks": self._stacks.look(history),
            "curves": _curves(self._curves.look(history), self._curves.behind, history),
        }
        if shown is not None and not history.state.final:
            picture["ranks"] = rank_map(shown.observation, shown.verdict, shown.config)
        return picture

    def _read_journal(self) -> None:
        if self._reader is None:
            self._reader = JournalReader(self._run.journal)
            self._reader.leave_out(_JOURNAL_BYTES)
        self._events = [*self._events, *self._reader.new()][-_EVENTS:]


def _curves(curves: Curves, behind: int, history: History) -> dict[str, Any]:
    resumes = {
        str(item.resume_step)
        for attempt in history.attempts
        for item in attempt.generations
        if item.resume_step
    }
    return {
        "width": curves.width,
        "rows": curves.rows,
        "again_rows": curves.undone_rows,
        "dropped": curves.dropped,
        "behind": behind,
        "resumes": dict.fromkeys(sorted(resumes, key=int), 1),
        "broken": {str(key): count for key, count in curves.broken.items()},
        "changes": {str(step): reason for step, reason in curves.changes[-40:]},
        "series": {name: _points(points) for name, points in curves.points.items() if points},
        "again": _points(curves.undone),
    }


def _points(points: dict[int, Point]) -> dict[str, list[float]]:
    """Bucket → [least, greatest, mean]; one number where they are equal."""
    return {str(key): _values(points[key]) for key in sorted(points)}


def _values(point: Point) -> list[float]:
    values = [_short(point.low), _short(point.high), _short(point.mean)]
    return values[:1] if values[0] == values[1] else values


def _short(value: float) -> float:
    """Five digits are more than a chart can show."""
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0
