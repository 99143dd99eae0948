"""SIGUSR1: save at the next step boundary and leave with 75. The handler only sets a flag."""

import signal
from types import FrameType


class StopFlag:
    """Whether this process was asked to save and leave. All ranks agree before anyone acts on it."""

    def __init__(self) -> None:
        self.requested = False

    @classmethod
    def install(cls) -> "StopFlag":
        """Listen for SIGUSR1 from now on, one that arrived while it was blocked included.

        SIGTERM and SIGINT go back to killing: a forked worker must not inherit a handler of its parent.
        """
        flag = cls()
        signal.signal(signal.SIGUSR1, flag._set)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})
        return flag

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
