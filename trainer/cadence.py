"""When a save is due: by steps, by minutes, or by what a save costs this run and how often it fails."""

import logging
import statistics
from collections import deque
from collections.abc import Callable

from contract.config.checkpoint import Checkpoint
from contract.fold import fold
from contract.interval import Failures, best_interval, failures_of
from contract.journal import JournalReader
from contract.layout import RunDir

log = logging.getLogger(__name__)

_TOLD = 0.2  # a change of the interval by so much is worth a line in the log
_COSTS = 8  # the median of so many saves is what one costs


class Cadence:
    """The rhythm of saves. Steps are counted alike on all ranks; time is rank 0's, whose wish counts for all."""

    def __init__(self, wanted: Checkpoint, failures: Failures | None, *, clock: Callable[[], float]) -> None:
        """`failures`: this run's up to now; None on the ranks that do not decide."""
        self._wanted = wanted
        self._failures = failures
        self._clock = clock
        self._started = self._saved_at = clock()
        self._costs: deque[float] = deque(maxlen=_COSTS)
        self._told_s = 0.0
        self.val_loss: float | None = None

    def due_at(self, step: int) -> bool:
        """Whether the steps ask for a save after this one: the same on all ranks."""
        every = self._wanted.interval_steps
        return every > 0 and step % every == 0

    def due(self) -> bool:
        """Whether the time asks for one."""
        return self._failures is not None and self._clock() - self._saved_at >= self.interval_s()

    def interval_s(self) -> float:
        """Seconds between two saves; infinite when only steps count."""
        wanted = self._wanted
        if wanted.interval_minutes:
            return wanted.interval_minutes * 60
        if wanted.interval_steps:
            return float("inf")
        least, most = wanted.auto_least_minutes * 60, wanted.auto_most_minutes * 60
        if not self._costs:
            return least  # the first save tells what one costs
        return min(most, max(least, best_interval(self.mtbf_s(), statistics.median(self._costs))))

    def mtbf_s(self) -> float:
        """Mean seconds between two failures, this generation's time so far included."""
        known = self._failures or Failures()
        now = Failures(count=known.count, trained_s=known.trained_s + self._clock() - self._started)
        return now.mtbf_s(self._wanted.mtbf_hours * 3600)

    def evaluated(self, val_loss: float | None) -> None:
        """Remember the newest loss on the held-out part, for the next save."""
        self.val_loss = val_loss if val_loss is not None else self.val_loss

    def saved(self, stall_s: float | None) -> None:
        """A save was due. `stall_s`: for how long training stood still; None: it was left out."""
        self._saved_at = self._clock()
        if stall_s is None:
            return
        self.val_loss = None
        self._costs.append(stall_s)
        self._tell()

    def _tell(self) -> None:
        if self._wanted.interval_steps or self._wanted.interval_minutes or self._failures is None:
            return
        interval = self.interval_s()
        if abs(interval - self._told_s) > _TOLD * self._told_s:
            self._told_s = interval
            log.info(
                "saving every %.1f min: a save stops training for %.2f s, and %.1f h lie between two failures "
                "(%d failures so far)",
                interval / 60,
                statistics.median(self._costs),
                self.mtbf_s() / 3600,
                self._failures.count,
            )


def failures_so_far(run: RunDir) -> Failures:
    """What the run's journal tells of its failures; nothing where there is none (a start without a supervisor)."""
    try:
        return failures_of(fold(JournalReader(run.journal).new()))
    except (OSError, ValueError) as error:
        log.warning(
            "the journal cannot be read, so the interval between saves ignores past failures: %s", error
        )
        return Failures()
