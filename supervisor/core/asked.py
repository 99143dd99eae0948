"""What people ask for: pause, resume, cancel. A request stays open until what it asks for is done."""

from contract.requests import Request, RequestKind
from contract.states import ControlPhase, JobState, RunState
from supervisor.core.actions import Action, Answer, Reconfigure, SaveAndLeave, SetState, Submit, Wait
from supervisor.core.case import Case
from supervisor.core.ends import DEAF
from supervisor.core.finish import LEAVE_S, close, end_job
from supervisor.core.profiles import kept_for

RESUMED = "resumed by"  # how the reason of an attempt begins that a person asked for


def refuse_impossible(case: Case) -> tuple[Action, ...]:
    """Answers to requests that nothing need be done for, while the run goes on."""
    pausing = case.pausing or _first(case, RequestKind.PAUSE) is not None
    # A resume waits until the pause that came before it is done.
    kinds = {RequestKind.UNKNOWN} if pausing else {RequestKind.UNKNOWN, RequestKind.RESUME}
    return tuple(
        _not_possible(case, request) for request in case.observation.requests if request.kind in kinds
    )


def stop_as_asked(case: Case) -> tuple[Action, ...] | None:
    """What cancel and pause do while the run goes on, None when neither is asked for. Cancel beats pause."""
    cancel = _first(case, RequestKind.CANCEL)
    if cancel is not None:
        return _stop(case, RunState.CANCELLED, f"cancelled by {cancel.by or 'a person'}", cancel)
    pause = _first(case, RequestKind.PAUSE)
    if pause is not None or case.pausing:
        by = f"paused by {pause.by or 'a person'}" if pause else "paused"
        return _stop(case, RunState.PAUSED, by, pause)
    return None


def answer_final(case: Case) -> tuple[Action, ...]:
    """The oldest request of a run that is over. One a tick: its answer may change the state."""
    if not case.observation.requests:
        return ()
    request, state = case.observation.requests[0], case.history.state
    if request.kind is RequestKind.PROFILE and (kept := kept_for(case, request)) is not None:
        return (kept,)
    match request.kind:
        case RequestKind.RESUME if state is not RunState.COMPLETED:
            return _resume(case, request)
        case RequestKind.CANCEL if state is not RunState.COMPLETED:
            done = case.state(RunState.CANCELLED, f"cancelled by {request.by or 'a person'}")
            return (*done, Answer(request=request, outcome="the run is cancelled", ok=True))
        case RequestKind.PAUSE if state is RunState.PAUSED:
            return (Answer(request=request, outcome="the run is paused", ok=True),)
        case _:
            return (_not_possible(case, request),)


def _resume(case: Case, request: Request) -> tuple[Action, ...]:
    newest = case.newest
    if newest is not None and newest.ended is None and not (case.unborn and not case.job_state.alive):
        return ()  # never two attempts alive: first the old job's end is recorded
    if request.settings and case.history.changed_for != request.id:
        return (Reconfigure(request=request),)  # what follows is decided with the new settings
    reason = f"{RESUMED} {request.by or 'a person'}"
    return (
        SetState(state=RunState.PENDING, reason=reason),
        Answer(request=request, outcome="the run goes on with a new attempt", ok=True),
    )


def _stop(case: Case, state: RunState, reason: str, request: Request | None) -> tuple[Action, ...]:
    """Toward a run without a job, whatever it takes; then the state and the answer."""
    newest = case.newest
    if newest is None or newest.ended is not None:
        return _stopped(case, state, reason, request)
    if case.unborn:
        return _stop_unborn(case, state, reason, request)
    if case.job_over:
        return _stopped(case, state, reason, request, closing=close(case, reason))
    if state is RunState.CANCELLED:
        return end_job(case, reason)
    return _pause(case, reason)


def _pause(case: Case, reason: str) -> tuple[Action, ...]:
    """Save, leave, and end the job only if that does not come about."""
    newest = case.newest
    assert newest is not None
    asked: tuple[Action, ...] = ()
    if case.seen and not case.pausing:
        asked = (SaveAndLeave(attempt=newest.number, reason=reason),)
    if case.job_state in {JobState.PENDING, JobState.HELD}:  # nothing to save yet
        return (*asked, *end_job(case, reason))
    if asked:
        return asked
    if case.failure is not None:
        return end_job(case, f"{reason}; it could not save: {case.failure.reason}")
    late = case.verdict.detected_s > LEAVE_S and case.verdict.step >= 0 and not _training(case)
    if late or case.deserted:
        return end_job(case, f"{reason}; saved, but the agents do not leave")
    return (Wait(until=case.now + LEAVE_S, reason="the workers save and the agents leave"),)


def _training(case: Case) -> bool:
    return any(worker.exit_code is None for _, worker in case.observation.workers)


def _stop_unborn(case: Case, state: RunState, reason: str, request: Request | None) -> tuple[Action, ...]:
    """Whether a job exists is in doubt. control.json makes sure that one which does will not start."""
    newest = case.newest
    assert newest is not None
    if case.job_state.alive:  # a submission that finds its job adopts it; then it can be ended
        return (Submit(attempt=newest.number, reason=newest.reason, exclude=newest.exclude),)
    control = case.observation.control
    fence: tuple[Action, ...] = ()
    if case.seen and control is not None and control.phase in {ControlPhase.PREPARE, ControlPhase.GO}:
        fence = (SaveAndLeave(attempt=newest.number, reason=reason),)
    unknown = case.seen and case.job_state is JobState.UNKNOWN and not newest.submit_impossible
    if unknown or case.may_have_gone_in:
        return (*fence, Wait(until=case.now + LEAVE_S, reason="whether the job exists is not known"))
    return (*fence, *_stopped(case, state, reason, request, closing=close(case, "never submitted")))


def _stopped(
    case: Case, state: RunState, reason: str, request: Request | None, closing: tuple[Action, ...] = ()
) -> tuple[Action, ...]:
    """State, then the end of the attempt, then the answer: killed in between, the next tick goes on from there."""
    saved = case.observation.checkpoint
    kept = f"; newest checkpoint: step {saved.step}" if saved else "; there is no checkpoint"
    deaf = sum(item.code == DEAF for item in case.observation.exits) if state is RunState.PAUSED else 0
    if deaf:
        kept += f"; {deaf} of its workers did not catch SIGUSR1 and saved nothing for the pause"
    answers = tuple(
        Answer(request=item, outcome=f"the run is {state}{kept}", ok=item.kind is _asks_for(state))
        for item in case.observation.requests
        if item == request or (state is RunState.CANCELLED and item.kind is RequestKind.PAUSE)
    )
    return (*case.state(state, reason + kept), *closing, *answers)


def _asks_for(state: RunState) -> RequestKind:
    return RequestKind.CANCEL if state is RunState.CANCELLED else RequestKind.PAUSE


def _first(case: Case, kind: RequestKind) -> Request | None:
    return next((item for item in case.observation.requests if item.kind is kind), None)


def _not_possible(case: Case, request: Request) -> Answer:
    state = case.history.state
    match request.kind:
        case RequestKind.UNKNOWN:
            outcome, ok = "this request is not understood", False
        case RequestKind.RESUME if (
            not state.final and case.history.changed_for != request.id and request.settings
        ):
            outcome, ok = f"the run is {state}; settings change while it is paused: pause it first", False
        case RequestKind.RESUME if state is RunState.PENDING:
            outcome, ok = "the run goes on", True  # the answer to a resume that was cut off in the middle
        case RequestKind.RESUME:
            outcome, ok = f"the run is {state}; only paused, failed or cancelled runs are resumed", False
        case RequestKind.SET if state.final and state is not RunState.COMPLETED:
            outcome, ok = (
                f"the run is {state}: say it with the resume, ciuic resume RUN --set KEY=VALUE",
                False,
            )
        case _:
            outcome, ok = f"the run is {state}: there is nothing to {request.kind}", False
    return Answer(request=request, outcome=outcome, ok=ok)
