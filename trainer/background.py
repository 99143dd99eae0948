"""One piece of work at a time beside the training loop, in a thread.

A thread, not a process: the copy stays where it is, hashing, torch's serialisation and writing release the interpreter,
and the writer cannot outlive or die without the rank.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Work that has begun; `result` when it is `done`. An exception in it is raised by `result`."""

    def __init__(self, work: Callable[[], T], name: str = "checkpoint") -> None:
        self._work = work
        self._done = threading.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None
        # A daemon: a rank that ends by an error must not wait for a file system that does not answer.
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is done within so many seconds; None waits for as long as it takes."""
        return self._done.wait(seconds)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
