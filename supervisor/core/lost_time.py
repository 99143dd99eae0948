"""Effective training time ratio: the share of the time with a job in which training went forward for good."""

from contract.history import AttemptHistory, GenerationHistory, History
from supervisor.core.look import attempt_of
from supervisor.core.observation import Observation


def ettr(history: History, observation: Observation, now: float) -> float | None:
    """1 - lost / elapsed; None while too little is known. Time in the queue counts on neither side.

    Lost: detection and restart of each recovered fault, and the steps that were done twice at the run's usual pace.
    """
    elapsed = _elapsed(history, now)
    if elapsed is None or elapsed <= 0:
        return None
    pace = _seconds_per_step(history, observation, now)
    lost = 0.0
    for fault in history.faults:
        lost += (
            fault.detect_s
            + fault.restart_s
            - _queued(attempt_of(history, fault.attempt), fault.failed_attempt)
        )
        if fault.repeated_steps:
            if pace is None:
                return None
            lost += fault.repeated_steps * pace
    return round(min(1.0, max(0.0, 1 - lost / elapsed)), 4)


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
    """Seconds between submission and go of the attempt that recovered, if it is another than the one that failed."""
    if attempt is None or attempt.number == failed_attempt or attempt.submitted_at is None:
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
