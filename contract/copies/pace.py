"""A limit to bytes a second, shared by all that send at once."""

import threading
from collections.abc import Callable


class Pace:
    """Pieces go out whole; each waits until those before it would be through at the limit. 0: no limit."""

    def __init__(
        self, bytes_a_second: float, *, clock: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._rate, self._clock, self._wait = bytes_a_second, clock, wait
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait for the turn of `size` bytes."""
        if not self._rate:
            return
        with self._lock:
            start = max(self._free_at, now := self._clock())
            self._free_at = start + size / self._rate
        if start > now:
            self._wait(start - now)
