"""The dead-man signal: a request every so often while the loop is healthy. Whoever waits for it alarms when it stops.

CIUIC_PING_URL holds the address (healthchecks.io, Uptime Kuma, cronitor, …); it is a secret like a robot's key.
"""

import threading
import time
from collections.abc import Callable, Mapping

from supervisor.adapters.post import Answer, Call, send

VARIABLE = "CIUIC_PING_URL"


class Ping:
    """Sends in a thread of its own: nobody's slowness delays the loop, and a loop that stands still sends nothing."""

    def __init__(
        self,
        environment: Mapping[str, str],
        every_s: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment, self._every_s, self._say, self._clock = environment, every_s, say, clock
        self._due_at = 0.0
        self._thread: threading.Thread | None = None
        self._said = ""

    def beat(self, *, healthy: bool) -> None:
        """One pass of the loop is done. Unhealthy ones are not told to the outside: silence is the alarm."""
        url = self._environment.get(VARIABLE, "").strip()
        now = self._clock()
        if not url or not healthy or now < self._due_at or (self._thread and self._thread.is_alive()):
            return
        self._due_at = now + self._every_s
        self._thread = threading.Thread(target=self._send, args=(url,), name="ping", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Let the request on its way arrive."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _send(self, url: str) -> None:
        answer = send(Call(url=url, secrets=(url,)), _understood)
        problem = "" if answer.delivered else f"the dead-man signal does not arrive: {answer.reason}"
        if problem and problem != self._said:
            self._say(problem)
        self._said = problem


def _understood(status: int, data: bytes) -> Answer:
    del data
    good = 200 <= status < 300
    return Answer(errcode=0 if good else None, status=status, reason=f"HTTP status {status}")
