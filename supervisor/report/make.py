"""Reads a run and says what its report holds."""

from typing import Any

from contract.layout import RunDir
from supervisor.core.lost_time import lost_time
from supervisor.core.status import status
from supervisor.reading import read
from supervisor.report.curves import read_curves
from supervisor.report.facts import facts


def report_facts(run: RunDir, now: float, monotonic: float) -> dict[str, Any]:
    """The facts of the report. Files only: Slurm is not asked.

    Raises:
        OSError: a file of the run cannot be read.
        ConfigError: run.toml cannot be read.
    """
    reading = read(run, now, monotonic, slurm=None)
    return facts(
        status(reading.history, reading.observation, reading.verdict, now),
        reading.history,
        reading.config,
        reading.events,
        lost_time(reading.history, reading.observation, now),
        read_curves(run),
        now,
    )
