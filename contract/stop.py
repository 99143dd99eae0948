"""How a training program hears that it shall save and leave: SIGUSR1, for a pause and before the job's time limit.

stop = StopFlag.listen()       # early, on every rank: who does not listen is killed by it after 30 s, and saves nothing
for step in …:
    …
    if stop.requested:         # with several ranks: once all agree, since each hears it at a moment of its own
        save(step)
        raise SystemExit(ExitCode.SAVED)
"""

import signal
from types import FrameType


class StopFlag:
    """Whether this process was asked to save and leave. The handler only sets a flag."""

    def __init__(self) -> None:
        self.requested = False

    @classmethod
    def listen(cls) -> "StopFlag":
        """Listen from now on, one that arrived while it was blocked included. Call it in the main thread."""
        flag = cls()
        signal.signal(signal.SIGUSR1, flag._set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        return flag

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
