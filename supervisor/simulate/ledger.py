"""Where the time goes. Every second of the elapsed time is in exactly one place."""

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Loss(StrEnum):
    """What time is lost to."""

    DETECTION = "detection"  # from the fault until the failure is known
    RESTART = "restart"  # new workers in place, process groups, first step
    LOAD = "load"  # reading the checkpoint
    START = "start"  # the same as restart, cold, in a new job
    REPEATED = "repeated"  # steps done again since the checkpoint
    CHECKPOINT = "checkpoint"  # standstill of saves
    ENDING = "ending"  # until the old job is gone
    QUEUE = "queue"  # a new job waits although enough nodes are up
    NODES = "nodes"  # a new job waits for nodes in repair
    BACKOFF = "backoff"  # the wait before a restart that has not been earned by progress
    STOPPED = "stopped"  # the supervisor has given up, until a person resumes
    SLOW = "slow"  # the slow node's drag
    PLANNED = "planned"  # planned stops


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One stretch of training: useful work that a later resume keeps, work that it does not, and standstills of saves."""

    durable_s: float
    open_s: float
    stall_s: float


def segment(length: float, interval: float, stall: float, lag: float) -> Segment:
    """Split a stretch of training of this length (s) that began at a checkpoint."""
    cycle = interval + stall
    whole = math.floor(length / cycle + 1e-12)
    rest = max(0.0, length - whole * cycle)
    work = whole * interval + min(rest, interval)
    kept = min(whole, max(0, math.floor((length - lag) / cycle + 1e-12)))
    durable = kept * interval
    return Segment(durable_s=durable, open_s=work - durable, stall_s=length - work)


@dataclass(kw_only=True)
class Ledger:
    """`useful_s` and `lost_s` add up to the elapsed time."""

    useful_s: float = 0.0
    lost_s: dict[Loss, float] = field(default_factory=lambda: dict.fromkeys(Loss, 0.0))

    def lose(self, loss: Loss, seconds: float) -> None:
        self.lost_s[loss] += seconds

    @property
    def elapsed_s(self) -> float:
        return self.useful_s + math.fsum(self.lost_s.values())

    @property
    def ettr(self) -> float:
        """Effective training time ratio: useful / elapsed time, the wait in the queue included."""
        return self.useful_s / self.elapsed_s if self.elapsed_s else 1.0
