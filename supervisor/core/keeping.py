"""When evidence is taken: before workers are ended for a hang, and when a person asks. Pure."""

from contract.config import RunConfig
from contract.control import OrderKind
from contract.events import Judged
from contract.requests import Request, RequestKind
from contract.states import Cause, VerdictKind
from supervisor.core.actions import Action, Answer, TakeEvidence, Wait
from supervisor.core.case import Case
from supervisor.core.look import is_fresh
from supervisor.core.observation import Observation

PATIENCE_S = 6.0  # the agents need 3 s at most, and a moment to read the order


def order_for(failure: Judged | None) -> str:
    """The order for this failure: the same each time; "" when no worker stands anywhere."""
    if failure is None or failure.verdict != VerdictKind.HUNG or failure.cause != Cause.HANG:
        return ""
    return f"evidence-g{failure.generation:04d}"


def evidence_first(case: Case, failure: Judged) -> tuple[Action, ...]:
    """What comes before the job of a hung generation is ended; () when nothing does (any more).

    A restart in place does not come here: its order travels with the prepare, and costs no round of its own.
    """
    generation, control, order = case.generation, case.observation.control, order_for(failure)
    if not order or generation is None or generation.evidence is not None or generation.failed_at is None:
        return ()
    until = generation.failed_at + PATIENCE_S
    if control is None or not case.seen or not generation.failed_at <= case.now < until:
        return ()
    if not any(case.is_fresh(seen) for seen in case.observation.nodes):
        return ()
    if carried_out(case.observation, case.config, order):
        return ()
    wait = Wait(until=until, reason="the agents keep where the workers stand")
    if any(item.id == order for item in control.orders):
        return (wait,)
    take = TakeEvidence(
        attempt=failure.attempt, order=order, kind=OrderKind.EVIDENCE, reason=f"hung: {failure.reason}"
    )
    return (take, wait)


def dump_as_asked(case: Case) -> tuple[Action, ...]:
    """What `ciuic dump` asks for, and its answers."""
    asked = [item for item in case.observation.requests if item.kind is RequestKind.DUMP]
    return tuple(action for request in asked for action in _dump(case, request))


def _dump(case: Case, request: Request) -> tuple[Action, ...]:
    kept, control = case.history.dumps.get(request.id), case.observation.control
    if kept is not None:
        if not kept.nodes:
            return (Answer(request=request, outcome="no agent could keep any evidence", ok=False),)
        missing = f"\nwithout {', '.join(kept.missing)}" if kept.missing else ""
        return (
            Answer(request=request, outcome=f"{kept.path}\n{kept.digest.get('en', '')}{missing}", ok=True),
        )
    live = any(worker.exit_code is None and case.is_fresh(seen) for seen, worker in case.observation.workers)
    ordered = control is not None and any(item.id == request.id for item in control.orders)
    if ordered:
        return ()
    if not live or not case.seen or control is None:
        return (Answer(request=request, outcome="no worker runs now: there is nothing to look at", ok=False),)
    return (
        TakeEvidence(
            attempt=control.attempt,
            order=request.id,
            kind=OrderKind.DUMP,
            reason=f"asked by {request.by or 'a person'}",
        ),
    )


def carried_out(observation: Observation, config: RunConfig, order: str) -> bool:
    """Whether every agent that is there has done with this order."""
    return all(
        seen.beat is not None and order in seen.beat.orders_done
        for seen in observation.nodes
        if is_fresh(seen, observation, config)
    )
