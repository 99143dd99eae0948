"""Where a run's time went: the faults' cost by cause, and the share of the time in which training went forward for good."""

from dataclasses import dataclass

from contract.events import Recovered
from contract.history import AttemptHistory, GenerationHistory, History
from contract.states import Cause
from supervisor.core.look import attempt_of
from supervisor.core.observation import Observation


@dataclass(frozen=True, kw_only=True)
class FaultCost:
    """What one recovered fault cost, in seconds. `repeated_s` None: the run's pace is not known.

    `restart_s` is without `queue_s`, the time between submission and go of the attempt that recovered.
    """

    fault: Recovered
    cause: str
    restart_s: float
    queue_s: float
    repeated_s: float | None

    @property
    def detect_s(self) -> float:
        return self.fault.detect_s

    @property
    def lost_s(self) -> float | None:
        """Detection, restart and the steps done twice; the queue is Slurm's time, not training's."""
        return None if self.repeated_s is None else self.detect_s + self.restart_s + self.repeated_s


@dataclass(frozen=True, kw_only=True)
class LostTime:
    """`elapsed_s`: with a job, from each attempt's go to its last known moment; None: an end is not known.

    `queue_s`: from submission to go, of all attempts.
    """

    elapsed_s: float | None
    queue_s: float
    faults: tuple[FaultCost, ...]

    @property
    def lost_s(self) -> float | None:
        """None when the cost of a fault is not known."""
        costs = [item.lost_s for item in self.faults]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def ratio(self) -> float | None:
        """Effective training time: 1 - lost / elapsed; None while too little is known."""
        if not self.elapsed_s or self.lost_s is None:
            return None
        return min(1.0, max(0.0, 1 - self.lost_s / self.elapsed_s))


def lost_time(history: History, observation: Observation, now: float) -> LostTime:
    """Detection and restart of each recovered fault, and the steps done twice at the run's usual pace."""
    pace = _seconds_per_step(history, observation, now)
    return LostTime(
        elapsed_s=_elapsed(history, now),
        queue_s=sum(_waited(attempt) for attempt in history.attempts),
        faults=tuple(_cost(fault, history, pace) for fault in history.faults),
    )


def ettr(history: History, observation: Observation, now: float) -> float | None:
    """1 - lost / elapsed; None while too little is known. Time in the queue counts on neither side."""
    ratio = lost_time(history, observation, now).ratio
    return None if ratio is None else round(ratio, 4)


def _cost(fault: Recovered, history: History, pace: float | None) -> FaultCost:
    queued = _queued(attempt_of(history, fault.attempt), fault.failed_attempt)
    repeated = fault.repeated_steps * pace if pace is not None else None
    return FaultCost(
        fault=fault,
        cause=_cause(fault, history),
        restart_s=fault.restart_s - queued,
        queue_s=queued,
        repeated_s=repeated if fault.repeated_steps else 0.0,
    )


def _cause(fault: Recovered, history: History) -> str:
    attempt = attempt_of(history, fault.failed_attempt)
    found = attempt.generations if attempt else ()
    failure = next((item.failure for item in found if item.number == fault.failed_generation), None)
    return failure.cause if failure else Cause.UNEXPLAINED.value


def _elapsed(history: History, now: float) -> float | None:
    """From each attempt's go to its last known moment. None if an attempt without a go or an end is in the way."""
    total, last = 0.0, len(history.attempts) - 1
    for number, attempt in enumerate(history.attempts):
        begun = _began(attempt)
        if begun is None:
            continue
        if number < last or attempt.ended is not None:
            end = _last_moment(attempt, history)
        else:
            end = history.state_at if history.state.final else now
        if end is None:
            return None
        total += max(0.0, end - begun)
    return total or None


def _began(attempt: AttemptHistory) -> float | None:
    first = attempt.generations[0] if attempt.generations else None
    return first.went_at if first else None


def _last_moment(attempt: AttemptHistory, history: History) -> float | None:
    """When the attempt stopped training: its last failure, the end of its job, or the run's final state."""
    newest = attempt.newest
    if newest is not None and newest.failed_at is not None:
        return newest.failed_at
    if attempt.ended_at is not None:
        return attempt.ended_at
    is_last = history.newest is not None and history.newest.number == attempt.number
    return history.state_at if is_last and history.state.final else None


def _queued(attempt: AttemptHistory | None, failed_attempt: int) -> float:
    """Seconds in the queue of the attempt that recovered, if it is another than the one that failed."""
    return 0.0 if attempt is None or attempt.number == failed_attempt else _waited(attempt)


def _waited(attempt: AttemptHistory) -> float:
    """Seconds between submission and go."""
    if attempt.submitted_at is None:
        return 0.0
    return max(0.0, (_began(attempt) or attempt.submitted_at) - attempt.submitted_at)


def _seconds_per_step(history: History, observation: Observation, now: float) -> float | None:
    """The run's pace over all generations that have done a step."""
    seconds = steps = 0.0
    for attempt in history.attempts:
        for generation in attempt.generations:
            last, at = _reached(generation, history, observation, now)
            if (
                generation.resume_step is None
                or generation.resumed_at is None
                or last <= generation.resume_step
            ):
                continue
            seconds += max(0.0, at - generation.resumed_at)
            steps += last - generation.resume_step
    return seconds / steps if steps else None


def _reached(
    generation: GenerationHistory, history: History, observation: Observation, now: float
) -> tuple[int, float]:
    """The last step of a generation, and when."""
    if generation.failure is not None and generation.failed_at is not None:
        return generation.failure.step, generation.failed_at
    newest = history.newest.newest if history.newest else None
    if generation is newest:
        return observation.step, history.state_at if history.state.final else now
    return -1, now
