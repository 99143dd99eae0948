"""The agent's end of staging: starts the process that copies, hears how far it is, tells people. Never waits for it."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contract import staged
from contract.config import RunConfig
from contract.layout import RunDir
from slurm.agent.child import Child

_AGAIN_S = 30.0


class Staging:
    """`health` is what the beat says of it, empty when nothing is to be staged."""

    def __init__(
        self, run: RunDir, config: RunConfig, environment: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self.stage: Path | None = None
        self.health: dict[str, Any] = {}
        self._child: Child | None = None
        self._started_at = float("-inf")
        self._said = ""
        try:
            self.stage = staged.directory(config.node.stage, environment)
        except ValueError as error:
            tell(f"no data is staged: {error}")
            return
        facts = (str(os.getpid()), str(run.path), str(self.stage))
        self._command = [sys.executable, "-P", "-m", "slurm.agent.staging_child", *facts]

    def look(self, now: float) -> None:
        """Take in what it says; start it when it is not there."""
        if self.stage is None:
            return
        if self._child is None:
            if now - self._started_at >= _AGAIN_S:
                self._started_at = now
                self._child = Child(self._command)
            return
        for line in self._child.lines():
            self._hear(json.loads(line))
        if self._child.ended:
            self._lost()

    def _hear(self, said: dict[str, Any]) -> None:
        self.health = said
        whole = said["of"] > 0 and said["shards"] == said["of"]
        share = f"{said['shards']} of {said['of']} shards ({said['bytes'] / 1e9:.2f} of {said['of_bytes'] / 1e9:.2f} GB)"
        if said["problem"]:
            text = (
                f"staging: {said['problem']}; {share} are in {self.stage}, the rest is read from the source"
            )
        elif whole:
            text = f"staging: all {share} are in {self.stage}"
        else:
            text = f"staging to {self.stage} has begun"
        if text != self._said:
            self._said = text
            self._tell(text)

    def _lost(self) -> None:
        self.end()
        self._tell("staging: its process ended; trying again, what is missing is read from the source")

    def end(self) -> None:
        """Nobody reads from here any more. What is there stays for the next attempt."""
        if self._child is not None:
            self._child.end()
            self._child = None
