"""SIGUSR1: save at the next step boundary and leave with 75. All ranks agree before anyone acts on it."""

import signal

from contract.stop import StopFlag


def install() -> StopFlag:
    """Listen for SIGUSR1; SIGTERM and SIGINT go back to killing: a forked worker must not inherit a parent's handler."""
    flag = StopFlag.listen()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    return flag
