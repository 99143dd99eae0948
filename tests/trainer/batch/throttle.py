"""Slows a process from outside, as cpulimit does: stopped for a part of every 40 ms."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

PERIOD_S = 0.04


@contextlib.contextmanager
def slowed(pid: int, factor: float) -> Iterator[None]:
    """The process computes 1 / `factor` of the time."""
    ended = threading.Event()
    stopped_s = PERIOD_S * (1 - 1 / factor)

    def pulse() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not ended.is_set():
                os.kill(pid, signal.SIGSTOP)
                ended.wait(stopped_s)
                os.kill(pid, signal.SIGCONT)
                ended.wait(PERIOD_S - stopped_s)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
