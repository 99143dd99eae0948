"""Everything that rank 0 tells of a step outside the run's own metrics."""

import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from contract.config.trackers import Trackers
from contract.layout import RunDir, tag
from trainer.trackers.curves import open_curves

log = logging.getLogger(__name__)

_LAST_S = 30.0  # for what is left when the training is over


class Tracking:
    """The trackers of this generation: on rank 0, from the step at which it resumed."""

    def __init__(
        self, run: RunDir, wanted: Trackers, *, attempt: int, generation: int, resumed_at: int
    ) -> None:
        self._curves = open_curves(
            run, attempt=attempt, generation=generation, resumed_at=resumed_at, wanted=wanted.tensorboard
        )
        self._process: subprocess.Popen[bytes] | None = None
        if wanted.services:
            command = [sys.executable, "-P", "-m", "trainer.trackers", str(run.path)]
            command += [str(attempt), str(generation), str(resumed_at)]
            try:
                run.trackers.mkdir(exist_ok=True)
                words = run.trackers / f"{tag(attempt, generation)}.log"
                with words.open("ab") as file:  # not ours: their failures explain no end of a worker
                    self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file)
                log.info("a process beside us feeds %s; what it says: %s", ", ".join(wanted.services), words)
            except OSError as error:
                log.warning("%s get nothing of this generation: %s", ", ".join(wanted.services), error)

    def write(self, row: Mapping[str, Any]) -> None:
        """One step's line of the metrics. The services read the file that it also stands in."""
        if self._curves is not None:
            self._curves.write(row)

    def flush(self) -> None:
        if self._curves is not None:
            self._curves.flush()

    def close(self) -> None:
        """The training is over. The services get a while for what is left."""
        if self._curves is not None:
            self._curves.close()
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(_LAST_S)
        except subprocess.TimeoutExpired:
            log.warning(
                "a service did not take the last rows within %.0f s; the metrics files have them", _LAST_S
            )
            process.kill()
            process.wait()
