"""Ending jobs: politely, then by force, and closing the attempt once the queue is sure."""

from contract.states import JobState, RunState
from supervisor.core import troubles
from supervisor.core.actions import Action, Cancel, CloseAttempt, Wait
from supervisor.core.case import Case

FORCE_S = 60.0
STUCK_S = 900.0
LEAVE_S = 600.0  # agents leave together within this time after the first is done


def end_job(case: Case, reason: str) -> tuple[Action, ...]:
    """Bring the newest attempt's job to its end. Each stage once: the alerts in the journal are the memory.

    Killed between the intent and its effect, the job is not told until the next stage: a minute late, and no harm.
    """
    attempt = case.newest
    assert attempt is not None
    if attempt.cancel is None or attempt.cancelled_at is None:
        return (Cancel(attempt=attempt.number, reason=reason),)
    waited = case.now - attempt.cancelled_at
    for after_s, key in ((STUCK_S, "stuck"), (FORCE_S, "forced")):
        told = case.tell(troubles.will_not_end(case.history, attempt.number, key, waited))
        if waited >= after_s and told:
            forced = Cancel(
                attempt=attempt.number, reason=f"{reason}; still there after {waited:.0f} s", force=True
            )
            return (forced, *told)
    return (Wait(until=case.now + FORCE_S, reason=f"attempt {attempt.number} was told to end: {reason}"),)


def ending(case: Case, since: float) -> tuple[Action, ...]:
    """Nothing makes a job that is ending end sooner. When it takes too long people are told."""
    attempt = case.newest
    assert attempt is not None
    waited = case.now - since
    told: tuple[Action, ...] = ()
    if waited >= STUCK_S:
        told = case.tell(troubles.will_not_end(case.history, attempt.number, "stuck", waited))
    return (*told, Wait(until=case.now + case.config.supervisor.queue_s, reason="the job is ending"))


def close(case: Case, reason: str) -> tuple[Action, ...]:
    """Record that the job is over. The run's state was recorded before: after `resume` it must not read as pending."""
    attempt = case.newest
    assert attempt is not None
    word = case.observation.job.state if case.seen and case.job_over else JobState.GONE
    return (CloseAttempt(attempt=attempt.number, job_state=word, reason=reason),)


def clean_up(case: Case) -> tuple[Action, ...]:
    """The run is over: what is left of its job goes, at its own pace where that is enough."""
    attempt = case.newest
    if attempt is None or attempt.ended is not None:
        return ()
    if case.unborn and attempt.submit_impossible:
        return close(case, "never submitted")
    if case.job_over and not case.may_have_gone_in:
        return close(case, case.observation.job.reason or "the job is over")
    if case.job_state.alive:
        return _let_go(case)
    return (
        ()
        if case.unborn
        else (Wait(until=case.now + FORCE_S, reason="whether the job is over is not known"),)
    )


def _let_go(case: Case) -> tuple[Action, ...]:
    state, since = case.history.state, case.history.state_at
    leaves_by_itself = state in {RunState.COMPLETED, RunState.PAUSED}
    if leaves_by_itself and 0 <= case.now - since < LEAVE_S and not case.deserted:
        return (Wait(until=since + LEAVE_S, reason="the agents leave by themselves"),)
    if case.job_state is JobState.ENDING:
        return (Wait(until=case.now + FORCE_S, reason="the job is ending"),)
    return end_job(case, f"the run is {state}")
