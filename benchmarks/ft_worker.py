"""The trainer as a worker of nvidia-resiliency-ext's `ft_launcher`: a heartbeat to its rank monitor after each step.

    python -P benchmarks/ft_worker.py SITE_PACKAGES --config … --run-dir …

SITE_PACKAGES is that of the peer's own environment. It is looked in last, so that torch and everything else is ours.
"""

import os
import sys
from typing import Any

sys.path.append(sys.argv.pop(1))

from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient  # type: ignore[import-not-found]

from contract.page import WorkerPage


def main() -> int:
    """Train, and report each finished step."""
    client = RankMonitorClient()
    client.init_workload_monitoring()
    plain = WorkerPage.report

    def report(page: WorkerPage, **figures: Any) -> None:
        plain(page, **figures)
        client.send_heartbeat()

    WorkerPage.report = report  # type: ignore[method-assign]
    from trainer.main import main as train

    return train()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as trainer/__main__.py
