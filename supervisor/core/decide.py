"""What to do now. Level-triggered: the journal's fold is the truth to act on, the look says what the world is like.

The shell promises: a failed verdict of a generation without a recorded failure is journalled as `Judged` before this
is called, with the history folded again; every action journals its intent before its effect; actions are carried
out in order, and one that raises stops the rest. Then being killed between any two effects is harmless: called again
on the world as it then is, this goes on from there, and on an unchanged world it only waits.
"""

from dataclasses import replace

from contract.config import RunConfig
from contract.history import AttemptHistory, History
from contract.states import JobState, RunState, VerdictKind
from supervisor.core import alerts, copies, troubles
from supervisor.core.actions import Action, Answer, Go, Prepare, Submit, Tell, Wait
from supervisor.core.asked import answer_final, refuse_impossible, stop_as_asked
from supervisor.core.case import Case
from supervisor.core.digest import digests
from supervisor.core.finish import clean_up, close
from supervisor.core.heard import heard
from supervisor.core.hot import set_as_asked
from supervisor.core.keeping import dump_as_asked, order_for
from supervisor.core.observation import Observation
from supervisor.core.profiles import profile_as_asked
from supervisor.core.restart import answer_failure, submit_again, submit_next
from supervisor.core.verdict import Verdict

_DOUBT_S = 30.0  # a run that cannot be observed for so long is shown as unknown


def decide(
    history: History, observation: Observation, verdict: Verdict, config: RunConfig, now: float
) -> tuple[Action, ...]:
    """The actions of this tick, in the order in which they must happen."""
    if history.lost:  # an empty journal is no ground for a first attempt
        return (Wait(until=now + config.monitor.unknown_alert_s, reason=f"left alone: {history.lost}"),)
    answers: tuple[Action, ...] = heard(history, observation.requests, now)
    if answers:
        rest = tuple(item for item in observation.requests if not item.kind.only_told)
        observation = replace(observation, requests=rest)
    if not config.metadata.watched:
        return answers
    case = Case(history=history, observation=observation, verdict=verdict, config=config, now=now)
    answers += tuple(Tell(alert=alert) for alert in digests(history, observation, config, now))
    if not config.supervisor.observe_only:
        return (*answers, *_plan(case))
    refused = tuple(
        Answer(request=request, outcome="this run is only observed (observe_only)", ok=False)
        for request in observation.requests
    )
    return (*answers, *(action for action in _plan(case) if isinstance(action, Tell)), *refused)


def _plan(case: Case) -> tuple[Action, ...]:
    """First match wins."""
    if case.history.state.final:
        return (*clean_up(case), *answer_final(case), *copies.tell(case))
    over = _over(case)
    if over is not None:
        return over
    answers = (*refuse_impossible(case), *dump_as_asked(case), *set_as_asked(case), *profile_as_asked(case))
    stopping = stop_as_asked(case)
    if stopping is not None:
        return (*answers, *stopping)
    return (*answers, *_news(case), *copies.tell(case), *_go_on(case))


def _over(case: Case) -> tuple[Action, ...] | None:
    """The run is completed, or was cancelled by a person outside: nothing more is done but to say so."""
    if case.verdict.kind is VerdictKind.COMPLETED and case.failure is None:
        told = case.tell(alerts.completed(case.history, case.verdict.step, case.now))
        return (*told, *case.state(RunState.COMPLETED, case.verdict.reason))
    newest = case.newest
    if newest is None or newest.ended is not None or not case.job_over or case.pausing:
        return None
    # Workers that died of a person's cancel were judged before the queue told of it: its word overrules.
    if case.job_state is JobState.ENDED_CANCELLED and newest.cancel is None:
        said = f" ({case.observation.job.reason})" if case.observation.job.reason else ""
        reason = f"the job was cancelled, and not by the supervisor{said}"
        told = case.tell(alerts.cancelled(case.history, newest.number))
        return (*told, *case.state(RunState.CANCELLED, reason), *close(case, reason))
    return None


def _go_on(case: Case) -> tuple[Action, ...]:
    """Keep the run alive: first an attempt that is handed in, then a generation that trains in it."""
    newest = case.newest
    if newest is not None and newest.ended is None and case.observation.attempt > newest.number:
        # control.json moves on only when the attempt before is over: the journal has lost that (a backup?).
        reason = f"attempt {case.observation.attempt} came after it, which the journal does not know"
        return close(case, reason)
    if newest is not None and newest.ended is None and not case.unborn:
        return _keep_training(case, newest)
    if case.verdict.kind is VerdictKind.UNKNOWN:
        return _unknown(case)  # a run directory that cannot be read is no ground for a submission
    if newest is None:
        return (Submit(attempt=case.next_attempt, reason="the first attempt"),)
    return submit_again(case) if case.unborn else submit_next(case)


def _keep_training(case: Case, newest: AttemptHistory) -> tuple[Action, ...]:
    """First match wins."""
    if case.failure is not None:
        return answer_failure(case, case.failure)
    if case.verdict.kind is VerdictKind.UNKNOWN:
        return _unknown(case)
    if case.job_over and newest.cancel is not None:
        # We ended it for a wish that nobody remembers: what was wanted is that it ends.
        reason = newest.cancel.reason
        return (*case.state(RunState.CANCELLED, reason), *close(case, reason))
    return _prepare_again(case) or (*_progress(case), *_go(case))


def _prepare_again(case: Case) -> tuple[Action, ...]:
    """The order of a generation is in the journal and not in control.json: we were killed in between."""
    newest, generation = case.newest, case.generation
    if newest is None or generation is None or generation.intended_at is None:
        return ()
    if (case.observation.attempt, case.observation.generation) >= (newest.number, generation.number):
        return ()
    before = [item for item in newest.generations if item.number < generation.number]
    return (
        Prepare(
            attempt=newest.number,
            generation=generation.number,
            members=generation.members,
            reason=generation.reason,
            evidence=order_for(before[-1].failure if before else None),
        ),
    )


def _go(case: Case) -> tuple[Action, ...]:
    """Every member is ready: fix master and port. Generation 1 does this by itself."""
    observation, control = case.observation, case.observation.control
    if (
        control is None
        or not case.seen
        or not case.preparing
        or control.generation < 2
        or not control.members
    ):
        return ()
    beats = {seen.node: seen.beat for seen in observation.nodes if case.is_fresh(seen)}
    found = [beats.get(node) for node in control.members]
    if any(beat is None or beat.ready_for != control.generation for beat in found):
        return ()
    first = found[0]
    if first is None or not first.port or not first.address:
        return ()
    return (
        Go(
            attempt=control.attempt,
            generation=control.generation,
            members=control.members,
            master=first.address,
            port=first.port,
        ),
    )


def _progress(case: Case) -> tuple[Action, ...]:
    """The run's state as people see it, on change only."""
    state, reason = case.history.state, case.verdict.reason
    if case.verdict.trains:
        return (*_seen_again(case), *case.state(RunState.RUNNING, reason))
    if case.verdict.kind not in {VerdictKind.STARTING, VerdictKind.PENDING}:
        return ()
    if state is RunState.UNKNOWN:  # pending is for resume alone: it forgives failures
        back = RunState.RECOVERING if case.history.open_failure else RunState.STARTING
        return (*_seen_again(case), *case.state(back, reason))
    if case.verdict.kind is VerdictKind.STARTING and state is RunState.PENDING:
        return case.state(RunState.STARTING, reason)
    return ()


def _unknown(case: Case) -> tuple[Action, ...]:
    """Nothing is done but to wait, and to tell people after a while (rule 3)."""
    limit = case.config.monitor.unknown_alert_s
    # Where nothing tells how long it has lasted, it is as long as we have been looking at this.
    lasted = case.verdict.detected_s or case.observation.watched_s
    shown = case.history.state is RunState.UNKNOWN
    if shown:
        lasted = max(lasted, case.now - case.history.state_at)
    actions: tuple[Action, ...] = ()
    if not shown and lasted >= min(_DOUBT_S, limit):
        actions = case.state(RunState.UNKNOWN, case.verdict.reason)
    elif lasted >= limit and (shown or case.config.supervisor.observe_only):
        actions = case.tell(troubles.unknown(case.history, case.verdict.reason, lasted))
    return (*actions, Wait(until=case.now + limit, reason=f"cannot be observed: {case.verdict.reason}"))


def _seen_again(case: Case) -> tuple[Action, ...]:
    """After an alert that nothing could be seen: the all-clear."""
    told = troubles.unknown_key(case.history) in case.history.open_keys
    return case.tell(troubles.seen_again(case.history, case.verdict.reason)) if told else ()


def _saves(case: Case) -> tuple[Action, ...]:
    """Checkpoints that cannot be written while training goes on, and the all-clear."""
    history = case.history
    if history.saves_failing and history.save_failure is not None:
        return case.tell(troubles.saves_failing(history, history.save_failure))
    told = history.save_failure is not None and troubles.saves_failing_key(history) in history.open_keys
    return case.tell(troubles.saves_again(history)) if told else ()


def _news(case: Case) -> tuple[Action, ...]:
    """What people are told beside the answer to a failure."""
    newest, generation = case.newest, case.generation
    told: tuple[Action, ...] = ()
    if newest is None or newest.ended is not None:
        return told
    # While somebody knows of an incident that comes and goes, only its end is told.
    known = case.history.acknowledged is not None
    if generation is not None and generation.recovered is not None and not known:
        told += case.tell(alerts.recovered(case.history, generation.recovered))
    for notice in case.history.notices.values():
        if notice.over is None:
            told += case.tell(troubles.noticed(case.history, notice))
        elif notice.key in case.history.open_keys:
            told += case.tell(troubles.notice_over(case.history, notice))
    told += _saves(case)
    if case.failure is None:  # else its alert says it
        for _, body in case.history.left_out:
            if body.attempt == newest.number:
                told += case.tell(troubles.left_out(case.history, body))
    return told + _held(case, newest.number) + _queue(case)


def _held(case: Case, attempt: int) -> tuple[Action, ...]:
    """A job that somebody must release, and the all-clear."""
    job = case.observation.job
    if case.seen and job.state is JobState.HELD:
        return case.tell(troubles.held(case.history, attempt, job.reason))
    waits = troubles.held_key(attempt) in case.history.open_keys
    if waits and job.state in {JobState.PENDING, JobState.RUNNING}:
        return case.tell(troubles.released(case.history, attempt, job.state))
    return ()


def _queue(case: Case) -> tuple[Action, ...]:
    """A queue that does not answer while the run goes on, and the all-clear."""
    job = case.observation.job
    if not case.seen or job.state is JobState.GONE:
        return ()
    if job.state is not JobState.UNKNOWN:
        told = sorted(key for key in case.history.open_keys if key.startswith("queue:"))
        return tuple(
            action for key in told for action in case.tell(troubles.queue_answers(case.history, key))
        )
    if case.verdict.kind is VerdictKind.UNKNOWN or job.age_s < case.config.monitor.unknown_alert_s:
        return ()  # the alert of an unknown run says it
    return case.tell(troubles.queue_silent(case.history, job.reason, job.age_s))
