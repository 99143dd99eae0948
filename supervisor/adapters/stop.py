"""SIGTERM and SIGINT ask for a clean end, SIGHUP for a fresh start. Flags and a pipe: a signal may come at any line.

(threading.Event does not do: its `set` takes a lock that the interrupted `wait` may be holding, for ever.)
"""

import contextlib
import os
import select
import signal
from types import FrameType
from typing import Self


class StopSignal:
    """`asked` turns true; `wait` ends at once then. Afterwards the signals mean what they meant before.

    `reload`: whether SIGHUP is a wish too. It is where systemd sends it; from a terminal it still is the end.
    """

    def __init__(self, *, reload: bool = False) -> None:
        self.asked = False
        self._reload_asked = False
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }
        if reload:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._ask_reload)

    def reload_asked(self) -> bool:
        """Whether a fresh start was asked for since the last question."""
        asked, self._reload_asked = self._reload_asked, False
        return asked

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until asked to stop."""
        select.select([self._reader], [], [], seconds)
        if not self.asked:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 64)  # woken for a reload: the next wait is a wait again

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
            self._wake()

    def _ask_reload(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._reload_asked = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: then it is awake anyway
            os.write(self._writer, b"x")
