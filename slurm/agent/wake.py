"""What ends the sleep of the agent's loop: signals, which become flags, and whoever writes to us."""

import select
import signal
import socket
from collections.abc import Iterable

_SAVE = signal.SIGUSR1
_END = (signal.SIGTERM, signal.SIGINT)


class Wake:
    """`save`: Slurm's signal before the time limit has come; `terminated`: this agent was told to end."""

    def __init__(self) -> None:
        self.save = self.terminated = False
        self._reader: socket.socket | None = None

    def catch_signals(self) -> None:
        """From now on; each leaves a byte, so that none is slept through."""
        self._reader, writer = socket.socketpair()
        for end in (self._reader, writer):
            end.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        signal.signal(_SAVE, self._take)
        for number in _END:
            signal.signal(number, self._take)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def sleep(self, others: Iterable[int], seconds: float) -> None:
        """Until one of these descriptors can be read, a signal comes, or the time is up."""
        assert self._reader is not None
        poll = select.poll()  # made afresh: descriptors come and go, and there are few
        for descriptor in (self._reader.fileno(), *others):
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(max(0.0, seconds) * 1000):
            if descriptor == self._reader.fileno():
                self._reader.recv(4096)

    def _take(self, number: int, _frame: object) -> None:
        if number == _SAVE:
            self.save = True
        else:
            self.terminated = True
