"""A queue that tells this supervisor nothing: when that is said, and what is done all the same."""

from contract.events import Body, QueueAnswered, QueueSilent
from contract.history import History
from contract.states import JobState
from supervisor.core.actions import (
    Action,
    Answer,
    Go,
    PassOn,
    Prepare,
    SetBounds,
    SetState,
    TakeEvidence,
    Tell,
    Wait,
)
from supervisor.core.observation import Observation

SILENT_S = 30.0  # a controller under load takes ten

# They reach agents through the run directory, or only people: nothing of them is the queue's.
_WITHIN_THE_JOB = (Prepare, Go, SetBounds, TakeEvidence, PassOn, Answer, Tell, Wait)


def silent(observation: Observation) -> bool:
    """Whether the queue has said nothing for too long to be waited for."""
    return observation.job.state is JobState.UNKNOWN and observation.job.age_s >= SILENT_S


def news(history: History, observation: Observation) -> tuple[Body, ...]:
    """That it is silent, once; and that it answers again."""
    job = observation.job
    if history.queue_silent is None:
        told = QueueSilent(reason=job.reason, silent_s=round(job.age_s, 1))
        return (told,) if silent(observation) else ()
    return () if job.state is JobState.UNKNOWN else (QueueAnswered(),)


def needs_no_queue(actions: tuple[Action, ...], observation: Observation) -> bool:
    """Whether all of this stays within a job whose agents are seen to beat: its nodes are ours whatever the queue says.

    Only all of it: an order that is carried out without the one before it is another order.
    """
    beats = any(seen.moved and seen.beat is not None for seen in observation.nodes)
    return beats and observation.control is not None and all(_within_the_job(item) for item in actions)


def _within_the_job(action: Action) -> bool:
    if isinstance(action, SetState):
        return not action.state.final
    return isinstance(action, _WITHIN_THE_JOB)
