"""`ciuic set`: what changes while a run trains. The journal first; control.json follows it, whoever was killed between."""

from contract.control import OrderKind
from contract.events import HotSet
from contract.hot import checked, told
from contract.requests import Request, RequestKind
from supervisor.core.actions import Action, Answer, PassOn
from supervisor.core.case import Case
from supervisor.core.profiles import order as profile
from supervisor.core.profiles import refused


def set_as_asked(case: Case) -> tuple[Action, ...]:
    """The answers to what was asked, and control.json when it lags behind the journal."""
    asked = [item for item in case.observation.requests if item.kind is RequestKind.SET]
    return (*_pass_on(case), *(action for request in asked for action in _set(case, request)))


def _pass_on(case: Case) -> tuple[Action, ...]:
    control = case.observation.control
    if control is None or not case.seen or dict(control.hot) == dict(case.history.hot):
        return ()
    return (PassOn(attempt=control.attempt, reason=told(case.history.hot)),)


def _set(case: Case, request: Request) -> tuple[Action, ...]:
    try:
        values, once = checked(request.settings, case.config)
    except ValueError as error:
        return (Answer(request=request, outcome=str(error), ok=False),)
    problem = _impossible(case, once)
    if problem:
        return (Answer(request=request, outcome=problem, ok=False),)
    now = case.verdict.trains
    when = "from the next step boundary on" if now else "when training starts"
    said = [f"{told(values)} {when}"] if values else []
    said += ["a checkpoint after the next step"] if "checkpoint" in once else []
    said += ["a profile of the next steps, see ciuic profile RUN --show"] if "profile" in once else []
    events = (HotSet(values=values, by=request.by),) if values else ()
    answer = Answer(request=request, outcome="; ".join(said), ok=True, events=events)
    control = case.observation.control
    # At once: nobody may come back to a run whose watchdog is off.
    on = (PassOn(attempt=control.attempt, reason=told(values)),) if values and control and case.seen else ()
    return (*(_order(case, request, kind) for kind in once), answer, *on)


def _impossible(case: Case, once: tuple[str, ...]) -> str:
    if "profile" in once and (problem := refused(case, {})):
        return problem
    if "checkpoint" in once and (
        case.observation.control is None or not case.seen or not case.verdict.trains
    ):
        return "no worker trains now: there is nothing to save"
    return ""


def _order(case: Case, request: Request, kind: str) -> PassOn:
    control, reason = case.observation.control, f"asked by {request.by or 'a person'}"
    assert control is not None
    if kind == OrderKind.PROFILE:
        return profile(case, f"{request.id}-p", reason)
    return PassOn(attempt=control.attempt, order=request.id, kind=OrderKind.CHECKPOINT, reason=reason)
