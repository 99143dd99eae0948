"""Many runs failing at once for what is not their own: their restarts are spread, so that they do not finish the cluster.

A switch, a file server or a controller that dies takes many runs with it. When it comes back, all of them would load
their checkpoints, and ask the controller, in the same second. Pure: the other runs stand in the observation.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from contract.config.supervision import Supervisor
from contract.history import History
from contract.states import Cause
from supervisor.core.observation import Neighbour

# What several runs share: the network, the storage, the nodes' daemons, the controller. A hang belongs here, because
# one storage or one switch that stands still makes every rank of every run stand still.
SHARED = frozenset(
    {
        Cause.NETWORK,
        Cause.FILESYSTEM,
        Cause.COMM_TIMEOUT,
        Cause.COMM_PEER,
        Cause.RENDEZVOUS,
        Cause.NODE_FAILURE,
        Cause.LAUNCH,
        Cause.HANG,
    }
)
HELD = "several runs fail together"  # how the reason of a hold begins
_SPREAD_S = 5.0  # between two restarts, on average, for each place


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Not before `until`, and why."""

    until: float
    reason: str


def neighbour(history: History, now: float) -> Neighbour | None:
    """What this run is to others: its newest failure, and whether its restart is under way. None: it has not failed."""
    for attempt in reversed(history.attempts):
        for generation in reversed(attempt.generations):
            if generation.failure is not None and generation.failed_at is not None:
                return Neighbour(
                    run=history.run,
                    cause=generation.failure.cause,
                    failed_at=generation.failed_at,
                    restarting_s=_restarting(history, now),
                )
    return None


def hold(mine: Neighbour, others: Sequence[Neighbour], policy: Supervisor, now: float) -> Hold | None:
    """Whether this run's restart waits for its turn. None: it need not."""
    if not policy.storm_runs or mine.cause not in SHARED:
        return None
    storm = [
        other
        for other in (mine, *others)
        if other.cause in SHARED and abs(other.failed_at - mine.failed_at) <= policy.storm_window_s
    ]
    if len(storm) < policy.storm_runs:
        return None
    why = (
        f"{HELD}: {len(storm)} within {policy.storm_window_s:.0f} s of causes that are hardly their own "
        f"({_named(storm)}), so their restarts are spread, at most {policy.storm_at_once} at once"
    )
    due = mine.failed_at + _fraction(mine) * min(
        policy.backoff_max_s, _SPREAD_S * len(storm) / policy.storm_at_once
    )
    if mine.failed_at <= now < due:
        return Hold(until=due, reason=f"{why}; this one in {due - now:.0f} s")
    # A restart that takes longer than the window (a queue) does not keep the others waiting for ever.
    busy = sum(
        other.restarting_s is not None and other.restarting_s <= policy.storm_window_s
        for other in storm
        if other.run != mine.run
    )
    if busy >= policy.storm_at_once:
        return Hold(until=now + policy.tick_s, reason=f"{why}; {busy} are on their way now")
    return None


def _restarting(history: History, now: float) -> float | None:
    """Seconds since the restart of a run that has failed was ordered; None: none is under way."""
    newest = history.newest
    if history.open_failure is None or history.state.final or newest is None or newest.ended is not None:
        return None
    generation = newest.newest
    if generation is not None and generation.failure is not None:
        return None
    began = (
        generation.intended_at if generation and generation.intended_at is not None else newest.intended_at
    )
    return max(0.0, now - began)


def _fraction(mine: Neighbour) -> float:
    """Between 0 and 1: chance to the eye, the same for each look at the same failure."""
    return zlib.crc32(f"{mine.run} {mine.failed_at:.3f}".encode()) / 2**32


def _named(storm: Sequence[Neighbour]) -> str:
    counts: dict[str, int] = {}
    for other in storm:
        counts[other.cause] = counts.get(other.cause, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{cause} {count}" for cause, count in ordered)
