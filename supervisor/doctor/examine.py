"""All probes at once, each in a process of its own: one that hangs (a dead mount) costs its limit and nothing else."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import contract
from supervisor.doctor.finding import Finding, State

LIMIT_S = 40.0
_POLL_S = 0.02
_END_S = 1.0  # what hangs in the kernel ends later, or never


def examine(
    probes: Sequence[str], root: Path, recipe: Path | None, limit_s: float = LIMIT_S
) -> list[Finding]:
    """The findings of these probes, after `limit_s` seconds at most. Never waits for a process that cannot be ended."""
    with tempfile.TemporaryDirectory(prefix="ciuic-doctor-") as folder:
        running = [_Probe(name, root, recipe, Path(folder)) for name in probes]
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and any(probe.runs for probe in running):
            time.sleep(_POLL_S)
        return [finding for probe in running for finding in probe.findings(limit_s)]


class _Probe:
    """One probe at work. Its output goes to files: a full pipe would stop it."""

    def __init__(self, name: str, root: Path, recipe: Path | None, folder: Path) -> None:
        self._name, self._out, self._err = name, folder / f"{name}.json", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "supervisor.doctor", name, str(root), str(recipe or "")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=Path(contract.__file__).parents[1],
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def findings(self, limit_s: float) -> list[Finding]:
        if self.runs:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(_END_S)
            return [
                self._broken(f"no answer within {limit_s:g} s", "a file system or a service does not answer")
            ]
        try:
            return [
                Finding(**{**item, "state": State(item["state"])})
                for item in json.loads(self._out.read_bytes())
            ]
        except (ValueError, TypeError, KeyError):
            said = self._err.read_text(errors="replace").strip().splitlines()
            return [self._broken((said or ["no output"])[-1], f"it ended with {self._process.returncode}")]

    def _broken(self, what: str, why: str) -> Finding:
        fix = "run it again; if it stays so, look at that service or file system by hand"
        return Finding(
            id=self._name, state=State.FAIL, what=f"could not be examined: {what}", why=why, fix=fix
        )
