"""`ciuic set`: what changes while a run trains. The journal first; control.json follows it, whoever was killed between."""

from contract.control import OrderKind
from contract.events import HotSet
from contract.hot import checked, told
from contract.requests import Request, RequestKind
from supervisor.core.actions import Action, Answer, PassOn
from supervisor.core.case import Case


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
        values, save = checked(request.settings, case.config)
    except ValueError as error:
        return (Answer(request=request, outcome=str(error), ok=False),)
    control = case.observation.control
    order: tuple[Action, ...] = ()
    if save:
        if control is None or not case.seen or not case.verdict.trains:
            return (
                Answer(request=request, outcome="no worker trains now: there is nothing to save", ok=False),
            )
        order = (
            PassOn(
                attempt=control.attempt,
                order=request.id,
                kind=OrderKind.CHECKPOINT,
                reason=f"asked by {request.by or 'a person'}",
            ),
        )
    now = case.verdict.trains
    when = "from the next step boundary on" if now else "when training starts"
    said = [f"{told(values)} {when}"] if values else []
    said += ["a checkpoint after the next step"] if save else []
    events = (HotSet(values=values, by=request.by),) if values else ()
    return (*order, Answer(request=request, outcome="; ".join(said), ok=True, events=events))
