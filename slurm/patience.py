"""How long a command waits for Slurm: one limit for all its questions, and people are told while they wait.

Slurm's clients try for a minute or more by themselves when the controller is gone; they are ended when the time is up.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from slurm import squeue
from slurm.squeue import Answer

TELL_S = 2.5
_SILENT = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset|timed out)|zero bytes|can't find an address",
    re.IGNORECASE,
)


class Patience:
    """Slurm's clients, all together for so many seconds from the first question on. Each question is asked once.

    `silent`: why there is no answer, "" while there was one to each question.
    """

    def __init__(
        self,
        limit_s: float,
        ask: Callable[[Sequence[str], float], Answer | None] = squeue.ask,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.silent = ""
        self._limit_s, self._ask, self._clock = limit_s, ask, clock
        self._until: float | None = None
        self._said: dict[tuple[str, ...], Answer | None] = {}

    def __call__(self, command: Sequence[str]) -> Answer | None:
        key = tuple(command)
        if key not in self._said:
            self._said[key] = self._asked(command)
        return self._said[key]

    def _asked(self, command: Sequence[str]) -> Answer | None:
        self._until = self._clock() + self._limit_s if self._until is None else self._until
        left = self._until - self._clock()
        answer = self._ask(command, left) if left > 0 else None
        if unheard(answer):
            said = answer.err.strip().splitlines()[-1] if answer else ""
            self.silent = said or f"{command[0]}: no answer within {self._limit_s:g} s"
        return answer


def unheard(answer: Answer | None) -> bool:
    """Whether the controller has not heard the question, as far as its client can tell."""
    return answer is None or (answer.code != 0 and _SILENT.search(answer.err) is not None)


@contextlib.contextmanager
def telling(say: Callable[[str], object], text: str, after_s: float = TELL_S) -> Iterator[None]:
    """While this lasts longer than people take for a command that works, say why."""
    timer = threading.Timer(after_s, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
