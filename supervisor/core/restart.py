"""Submitting attempts and answering failures, the cheapest way first."""

from contract.events import Judged
from contract.states import JobState, RunState, VerdictKind
from supervisor.core import alerts, storm, troubles
from supervisor.core.actions import Action, Prepare, Submit, Wait
from supervisor.core.blame import suspects
from supervisor.core.budget import Stop, backoff, jittered, restart_at
from supervisor.core.case import Case
from supervisor.core.finish import LEAVE_S, close, end_job, ending
from supervisor.core.keeping import evidence_first, order_for
from supervisor.core.look import some
from supervisor.core.observation import Neighbour
from supervisor.core.placement import awaited, excluded, held_by_dead_nodes, members_in_place
from supervisor.core.rollback import roll_back, stop_or_go

_SUBMIT_FIRST_S = 5.0
_TELL_SUBMIT_AFTER = 3


def submit_again(case: Case) -> tuple[Action, ...]:
    """The newest attempt's submission failed or is in doubt: the same number once more, after a wait."""
    newest = case.newest
    assert newest is not None
    if newest.submit_impossible:
        reason = f"the job cannot be submitted: {newest.submit_failure}"
        alert = alerts.stopped_before_start(case.history, case.config, reason)
        return (*case.tell(alert), *case.state(RunState.FAILED, reason))
    tries, failed_at = newest.submit_failures, newest.submit_failed_at
    told: tuple[Action, ...] = ()
    if tries >= _TELL_SUBMIT_AFTER:
        told = case.tell(troubles.cannot_submit(case.history, newest.number, tries, newest.submit_failure))
    policy = case.config.supervisor
    wait = backoff(tries, max(_SUBMIT_FIRST_S, policy.backoff_s), policy.backoff_max_s)
    wait = jittered(wait, f"{case.history.run} {newest.number} submission {tries}")
    if failed_at is not None and failed_at <= case.now < failed_at + wait:
        return (*told, Wait(until=failed_at + wait, reason=f"submits again: {newest.submit_failure}"))
    return (*told, Submit(attempt=newest.number, reason=newest.reason, exclude=newest.exclude))


def submit_next(case: Case) -> tuple[Action, ...]:
    """The newest attempt is over: a new one, when its failure has earned it."""
    newest, failure = case.newest, case.failure
    assert newest is not None
    # Only `resume` makes a run with an ended attempt pending: the old failure is forgiven.
    if case.history.state is RunState.PENDING or failure is None:
        reason = case.history.reason or "the last attempt is over"
        return (Submit(attempt=case.next_attempt, reason=reason, exclude=excluded(case)),)
    stop = stop_or_go(case.history, failure, case.config)
    return _give_up(case, failure, stop) if stop else _new_attempt(case, failure)


def _new_attempt(case: Case, failure: Judged) -> tuple[Action, ...]:
    order = Submit(attempt=case.next_attempt, reason=failure.reason, exclude=excluded(case))
    return _when_due(case, failure, order)


def answer_failure(case: Case, failure: Judged) -> tuple[Action, ...]:
    """The newest generation has failed: stop, or restart in place, or end the job for a new attempt."""
    stop = stop_or_go(case.history, failure, case.config)
    if stop:
        return evidence_first(case, failure) or _give_up(case, failure, stop)
    recovering = case.state(RunState.RECOVERING, failure.reason)
    if case.job_over or held_by_dead_nodes(case):
        told = _told(case, failure, "attempt")
        return (*told, *recovering, *close(case, failure.reason), *_new_attempt(case, failure))
    members = members_in_place(case, failure)
    if members:
        order = Prepare(
            attempt=failure.attempt,
            generation=failure.generation + 1,
            members=members,
            reason=failure.reason,
            evidence=order_for(failure),
        )
        return (*_told(case, failure, "in-place"), *recovering, *_when_due(case, failure, order))
    first = evidence_first(case, failure)
    if first:
        return first
    late = awaited(case, failure)
    if late:
        reason = f"before a new attempt, {some(late)} may yet be heard of"
        return (*recovering, Wait(until=case.now + case.config.monitor.beat_s, reason=reason))
    return (*_told(case, failure, "attempt"), *recovering, *_leave(case, failure))


def _leave(case: Case, failure: Judged) -> tuple[Action, ...]:
    """The job must end before a new attempt may start. Only what the queue is sure of ends anything."""
    since = case.since_failure_s
    match case.job_state:
        case JobState.UNKNOWN | JobState.GONE:
            told: tuple[Action, ...] = ()
            if since >= case.config.monitor.unknown_alert_s:
                told = case.tell(troubles.queue_silent(case.history, case.observation.job.reason, since))
            return (
                *told,
                Wait(until=case.now + case.config.supervisor.queue_s, reason="the queue does not say"),
            )
        case JobState.ENDING:
            return ending(case, case.failed_at)
        case _ if failure.verdict == VerdictKind.SAVED and 0 <= since < LEAVE_S and not case.deserted:
            return (Wait(until=case.failed_at + LEAVE_S, reason="the agents leave by themselves"),)
        case JobState.RUNNING if (
            failure.verdict != VerdictKind.HUNG and 0 <= since < case.observation.job.age_s
        ):
            # A person's cancel kills workers first. Ending the job before the queue was asked again would make
            # that cancel look like ours, and the run would be submitted again against the person's will.
            return (
                Wait(until=case.failed_at + case.observation.job.age_s, reason="the queue is asked first"),
            )
        case _:
            return end_job(case, f"a new attempt is needed: {failure.reason}")


def _when_due(case: Case, failure: Judged, action: Submit | Prepare) -> tuple[Action, ...]:
    """The action, or the wait that comes before it."""
    at = restart_at(case.history, failure, case.failed_at, case.config.supervisor, case.now)
    if at > case.now:
        return (Wait(until=at, reason=f"backs off before the restart: {failure.reason}"),)
    mine = Neighbour(run=case.history.run, cause=failure.cause, failed_at=case.failed_at)
    held = storm.hold(mine, case.observation.neighbours, case.config.supervisor, case.now)
    if held is not None:
        return (Wait(until=held.until, reason=held.reason),)
    return (*roll_back(case, failure), action)


def _give_up(case: Case, failure: Judged, stop: Stop) -> tuple[Action, ...]:
    alert = alerts.stopped(case.history, case.config, failure, stop)
    return (*case.tell(alert), *case.state(RunState.FAILED, stop.en))


def _told(case: Case, failure: Judged, way: str) -> tuple[Action, ...]:
    """Told before the effect: killed in between, nobody stays uninformed."""
    blamed = {} if case.local else suspects(case.history, case.config, case.now)
    avoided = tuple(blamed[node] for node in failure.nodes if node in blamed)
    checkpoint = case.observation.checkpoint
    alert = alerts.failed(case.history, case.config, failure, way, checkpoint, case.next_attempt, avoided)
    return case.tell(alert)
