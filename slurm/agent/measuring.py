"""The agent's end of the exporter: starts it, notices its death, tries again."""

import subprocess
import sys
from collections.abc import Callable
from os import getpid

from contract.config import RunConfig
from contract.layout import RunDir
from slurm.agent.identity import Identity

_AGAIN_S = 60.0


class Measuring:
    """The exporter of this node, when there are GPUs to measure or a port to serve."""

    def __init__(
        self, run: RunDir, attempt: int, config: RunConfig, me: Identity, tell: Callable[[str], None]
    ) -> None:
        # Local "nodes" are agents on one machine: each takes a port of its own.
        port = config.node.metrics_port and config.node.metrics_port + (me.index if me.local else 0)
        facts = (getpid(), run.path, attempt, me.node, config.node.metrics_address, port)
        self._command = [sys.executable, "-P", "-m", "slurm.agent.exporter", *map(str, facts)]
        self._wanted = bool(port or config.job.gpus_per_node)
        self._tell = tell
        self._child: subprocess.Popen[bytes] | None = None
        self._next_at = 0.0

    def look(self, now: float) -> None:
        """Start it when it is time; tell when it has ended."""
        if self._child is not None and self._child.poll() is not None:
            if self._child.returncode:
                self._tell(
                    f"the exporter of metrics ended with {self._child.returncode}, training is not touched"
                )
                self._next_at = now + _AGAIN_S
            else:
                self._wanted = False  # it has said itself that there is nothing to measure
            self._child = None
        if self._wanted and self._child is None and now >= self._next_at:
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        """Nothing to measure any more."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
