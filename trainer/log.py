"""What a rank says: its level by rank, and no message so often that it hides the others."""

import logging
import sys
import time
from collections.abc import Callable

from contract.hot import level_of

MOST = 20  # of one message
PER_S = 60.0
_KEYS = 1000


class Sparing(logging.Filter):
    """Lets each message (by its words before the figures are filled in) through so often in a while, and counts the rest.

    The next one that passes says how many were left out. No message is lost without being counted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key, now = (record.name, record.levelno, str(record.msg)), self._clock()
        since, count = self._seen.get(key, (now, 0))
        if now - since >= PER_S:
            if count > MOST:
                record.msg = f"{record.getMessage()} (and {count - MOST} more like it were left out)"
                record.args = None
            since, count = now, 0
        if len(self._seen) >= _KEYS and key not in self._seen:
            self._seen.clear()
        self._seen[key] = since, count + 1
        return count < MOST


def configure(rank: int, *, supervised: bool) -> None:
    """Lines on stderr. Under an agent the node's log adds time, generation and rank."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Sparing())
    alone = f"%(asctime)s %(levelname)s rank {rank}: %(message)s"
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s" if supervised else alone))
    root = logging.getLogger()
    root.handlers = [handler]
    set_level("", rank)


def set_level(word: str, rank: int) -> None:
    """The level that `ciuic set RUN log_level=WORD` gives this rank; "": as it starts, rank 0 telling more than others."""
    own = "info" if rank == 0 else "warning"
    logging.getLogger().setLevel((level_of(word, rank) or own).upper())
