"""SIGTERM and SIGINT ask for a clean end. A flag and a pipe, because a signal may come at any line.

(threading.Event does not do: its `set` takes a lock that the interrupted `wait` may be holding, for ever.)
"""

import os
import select
import signal
from types import FrameType
from typing import Self


class StopSignal:
    """`asked` turns true; `wait` ends at once then. Afterwards the signals mean what they meant before."""

    def __init__(self) -> None:
        self.asked = False
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until asked to stop."""
        select.select([self._reader], [], [], seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self.asked:
            self.asked = True
            os.write(self._writer, b"x")
