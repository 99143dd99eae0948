"""Processes that a test starts: none outlives it, however it ends."""

import contextlib
import subprocess
from collections.abc import Sequence
from typing import Any


class Processes(contextlib.ExitStack):
    """Starts processes; those that still run when it is left are killed, and all are reaped and closed.

    A Popen that is left alone warns when it is collected, in the middle of some other test.
    """

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen:
        process = subprocess.Popen(command, **options)
        self.callback(_end, process)
        return process


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait(30)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
