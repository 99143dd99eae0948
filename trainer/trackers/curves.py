"""TensorBoard's event files: one directory for the whole run, one file a generation, one curve.

TensorBoard reads the files of a directory in the order of their names and, where one begins with a session start at step
N, forgets what earlier files said of steps from N on. So a file is named by attempt and generation, not by a host's
clock, and begins with the step after the resume: steps that are done again replace those of before.
"""

import importlib.util
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.layout import RunDir
from trainer.trackers.scalars import scalars

log = logging.getLogger(__name__)

_FLUSH_S = 5.0


class Curves:
    """The event file of this generation. Without the package, or when its file system refuses, it writes nothing."""

    def __init__(self, path: Path, *, first_step: int) -> None:
        self._records: Any = None
        self._flushed_at = 0.0
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._log = event_pb2.SessionLog
        try:
            path.parent.mkdir(exist_ok=True)
            self._records = RecordWriter(path.open("ab"))
        except OSError as error:
            self._give_up(error)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        start = self._log(status=self._log.START)
        self._write(self._event(wall_time=time.time(), step=first_step, session_log=start))

    def write(self, row: Mapping[str, Any]) -> None:
        """One step's line of the metrics."""
        value = self._summary.Value
        values = [value(tag=name, simple_value=number) for name, number in scalars(row).items()]
        now = time.time()
        self._write(self._event(wall_time=now, step=row["step"], summary=self._summary(value=values)))
        if now - self._flushed_at > _FLUSH_S:
            self._flushed_at = now
            self.flush()

    def flush(self) -> None:
        """Hand what was written to the file system: no checkpoint may be newer than the curve that led to it."""
        if self._records is not None:
            try:
                self._records.flush()
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            try:
                records.close()
            except OSError as error:
                self._give_up(error)

    def _write(self, event: Any) -> None:
        if self._records is not None:
            try:
                self._records.write(event.SerializeToString())
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("TensorBoard gets nothing more of this generation: %s", error)
        self._records = None


def preload() -> None:
    """Import what an event file needs, if it is installed: for processes from which others are forked."""
    if importlib.util.find_spec("tensorboard") is not None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: F401
        from tensorboard.summary.writer import record_writer  # noqa: F401


def open_curves(run: RunDir, *, attempt: int, generation: int, resumed_at: int, wanted: str) -> Curves | None:
    """The curves of this generation, None when nobody wants them or nothing can write them."""
    if wanted == "off":
        return None
    if importlib.util.find_spec("tensorboard") is None:
        log.info(
            'no event files for TensorBoard: the package is not installed (pip install "ciuic[trackers]")'
        )
        return None
    return Curves(run.events_of(attempt, generation), first_step=resumed_at + 1)
