"""One round after the other, until one does not come back: then it is left behind and the others go on.

A read of a network file system that has gone away blocks its thread, and nothing in this process can wake it. Rounds
run in a thread of their own. One that is late keeps that thread, the others get a new one; it loses its turn, so that
what all runs share is still used by one at a time, and waits for a turn before it goes on where it was.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_MOST_LATE = 64  # threads that may hang at once; then the supervisor itself waits


class Turn:
    """Held by one thread at a time, and taken away from one that hangs."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._holder: int | None = None

    def regain(self) -> None:
        """Before anything that runs share: go on at once, or, if the turn was lost, when it is free again."""
        me = threading.get_ident()
        with self._free:
            while self._holder not in {None, me}:
                self._free.wait()
            self._holder = me

    def give_up(self) -> None:
        with self._free:
            if self._holder == threading.get_ident():
                self._holder = None
                self._free.notify()

    def take_away(self) -> None:
        """From whoever holds it."""
        with self._free:
            self._holder = None
            self._free.notify()


@dataclass(kw_only=True)
class _Round:
    work: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Lanes:
    """`run` does a run's round; a run whose last round has not come back is passed over."""

    def __init__(self, turn: Turn, patience_s: float) -> None:
        self._turn = turn
        self._patience_s = patience_s
        self._late: dict[str, _Round] = {}
        self._waiting: queue.SimpleQueue[_Round | None] | None = None

    def run(self, key: str, work: Callable[[], None]) -> None:
        """Do it, or, where it takes longer than our patience, leave it behind.

        Raises:
            whatever the round raised, now or when a late one has come back.
        """
        if self.is_late(key):
            return
        job = _Round(work=work)
        self._thread().put(job)
        if not job.done.wait(self._patience_s) and len(self._late) < _MOST_LATE:
            self._late[key] = job
            self._waiting = None  # that thread is lost to the others; it ends after this round
            self._turn.take_away()
            return
        job.done.wait()
        _raise(job)

    def is_late(self, key: str) -> bool:
        """Whether its last round has still not come back."""
        job = self._late.get(key)
        if job is None or not job.done.is_set():
            return job is not None
        del self._late[key]
        _raise(job)
        return False

    @property
    def late(self) -> frozenset[str]:
        return frozenset(key for key, job in self._late.items() if not job.done.is_set())

    def close(self) -> None:
        """Threads that hang end with the process."""
        if self._waiting is not None:
            self._waiting.put(None)
            self._waiting = None

    def _thread(self) -> "queue.SimpleQueue[_Round | None]":
        if self._waiting is None:
            self._waiting = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(self._waiting,), name="rounds", daemon=True).start()
        return self._waiting

    def _work(self, jobs: "queue.SimpleQueue[_Round | None]") -> None:
        while (job := jobs.get()) is not None:
            try:
                self._turn.regain()
                job.work()
            except BaseException as error:  # raised again where the rounds are called from
                job.error = error
            finally:
                self._turn.give_up()
                job.done.set()
            if self._waiting is not jobs:
                return  # left behind; the others have another thread


def _raise(job: _Round) -> None:
    if job.error is not None:
        raise job.error
