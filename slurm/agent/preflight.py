"""The agent's end of the preflight: starts the checks, takes in the result, and does not wait for ever."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contract.config import RunConfig
from slurm.agent.child import Child
from slurm.agent.identity import Identity

LIMIT_S = 90.0


class Preflight:
    """`over` once there is a result. `unfit`: why this node must not train, "" when nothing is known against it."""

    def __init__(
        self,
        attempt: Path,
        config: RunConfig,
        me: Identity,
        environment: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self.over = not config.node.preflight
        self.unfit = ""
        self.health: dict[str, Any] = {}
        self._tell = tell
        self._begun_at = 0.0
        self._child: Child | None = None
        self._said = b""
        # Local "nodes" share this machine's GPUs with each other: what runs there is no stranger's.
        gpus = 0 if me.local else config.job.gpus_per_node
        allowed = environment.get("CUDA_VISIBLE_DEVICES", "-") if gpus else "-"
        facts = (str(attempt), me.node, str(gpus), allowed)
        self._command = [sys.executable, "-P", "-m", "slurm.agent.preflight_child", *facts]

    def look(self, now: float) -> None:
        """Start the checks, or see whether they are done."""
        if self.over:
            return
        if self._child is None:
            self._begun_at = now
            self._child = Child(self._command)
            return
        self._said = b"".join([self._said, *self._child.lines()])
        if self._child.ended:
            self._ended()
        elif now - self._begun_at > LIMIT_S:
            late = f"the checks did not end within {LIMIT_S:.0f} s: a driver or the run directory does not answer"
            self._result(problems=[late])

    def _ended(self) -> None:
        try:
            said = json.loads(self._said)
        except ValueError:  # our own fault must keep no node out
            self._tell("preflight: the checks ended without a result, training is not held up")
            self._result(problems=[])
            return
        self.health = {"notes": said["notes"], "problems": said["problems"], **said["facts"]}
        for note in said["notes"]:
            self._tell(f"preflight: {note}")
        self._result(problems=said["problems"])

    def _result(self, *, problems: list[str]) -> None:
        self.over = True
        self.unfit = "; ".join(problems)
        self.end()

    def end(self) -> None:
        """Leave the checks to themselves."""
        if self._child is not None:
            self._child.end()
            self._child = None
