"""The copier processes of one run: at most one a kind, started when a copy is due, forgotten when it ends."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import contract
from contract.config import RunConfig, read_resolved
from contract.copies.report import read_report
from contract.copies.target import Kind, wanted
from contract.layout import RunDir
from supervisor.adapters.checkpoints import CheckpointReader, ResumeReader
from supervisor.copies.__main__ import BUSY
from supervisor.copies.copier import died

_OWN_WORD = {0, 1, BUSY}  # exit codes with which the copier has said everything itself


def made(config: RunConfig) -> tuple[Kind, ...]:
    """The copies that a supervisor makes of this run: none of one that it leaves alone or only observes."""
    return wanted(config) if config.metadata.watched and not config.supervisor.observe_only else ()


class LastCopies:
    """Whether a run that is over, and that nobody holds, still lacks a copy of its newest checkpoint."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._checkpoints = CheckpointReader(run)

    def missing(self) -> bool:
        """By the same look as a supervision's, so that both always agree."""
        kinds = made(read_resolved(self._run.config))
        newest = self._checkpoints.look(ResumeReader(self._run).look(0)) if kinds else None
        if newest is None:
            return False
        mark = (newest.step, newest.attempt, newest.generation)
        reports = [read_report(self._run, kind) for kind in kinds]
        return any(report is None or report.newest != mark for report in reports)


class Copiers:
    """`epoch` is the supervisor's: a copier of an older one does nothing any more.

    `secrets` names variables that are not handed on: the robots' keys are no business of a copier's.
    """

    def __init__(self, run: RunDir, epoch: int, secrets: frozenset[str], say: Callable[[str], None]) -> None:
        self._run, self._epoch, self._secrets, self._say = run, epoch, secrets, say
        self._running: dict[Kind, subprocess.Popen[bytes]] = {}

    def tend(self, due: Iterable[Kind]) -> None:
        """Take leave of those that have ended, start those that are due."""
        for kind, process in list(self._running.items()):
            if process.poll() is not None:
                del self._running[kind]
                self._ended(kind, process.returncode)
        for kind in due:
            if kind not in self._running:
                self._running[kind] = self._start(kind)

    def close(self) -> None:
        """End them: what they were doing is gone on with by the next."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def _start(self, kind: Kind) -> "subprocess.Popen[bytes]":
        arguments = (str(self._run.path), kind, str(self._epoch), str(os.getpid()))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "supervisor.copies", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in self._secrets},
            cwd=Path(contract.__file__).parents[1],
        )

    def _ended(self, kind: Kind, code: int) -> None:
        if code in _OWN_WORD:
            return
        what = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._say(f"the copier for the {kind} ended with {what}")
        died(self._run, kind, f"the copier ended with {what}", time.time())
