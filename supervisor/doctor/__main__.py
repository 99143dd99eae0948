"""`python -P -m supervisor.doctor PROBE ROOT CONFIG`: one probe, in a process that may be killed; JSON on stdout."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from contract.config import RunConfig, load
from supervisor.doctor.finding import Finding
from supervisor.doctor.machine import judge_machine, measure_machine
from supervisor.doctor.outside import probe_alerts, probe_copies
from supervisor.doctor.packages import judge_packages, measure_packages
from supervisor.doctor.slurm import probe_slurm
from supervisor.doctor.storage import judge_storage, measure_storage

Probe = Callable[[Path, RunConfig | None], list[Finding]]
PROBES: dict[str, Probe] = {
    "slurm": lambda _, config: probe_slurm(config),
    "storage": lambda root, _: judge_storage(measure_storage(root)),
    "packages": lambda _, config: judge_packages(measure_packages(), config),
    "machine": lambda *_: judge_machine(measure_machine()),
    "alerts": lambda _, config: probe_alerts(config or RunConfig()),
    "copies": lambda _, config: probe_copies(config or RunConfig()),
}


def main(arguments: Sequence[str]) -> int:
    """The configuration was checked by the caller, which reports its problems."""
    probe, root, recipe = arguments
    config = load(Path(recipe)) if recipe else None
    print(json.dumps([asdict(finding) for finding in PROBES[probe](Path(root), config)]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
