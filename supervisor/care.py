"""What a run's history and one look at it say about the care that it needs. Pure."""

from contract.config import RunConfig
from contract.config.run import Metadata
from contract.history import History
from contract.states import JobState, RunState
from supervisor.core import actions as do
from supervisor.core.observation import Observation
from supervisor.core.queue_silence import needs_no_queue, silent


def wished(config: RunConfig, history: History, observation: Observation) -> RunConfig:
    """A run that is left alone is still paused, resumed or cancelled when its owner asks for it."""
    resuming = (
        history.state is RunState.PENDING and history.newest is not None and history.newest.ended is not None
    )
    asked = any(not request.kind.only_told for request in observation.requests)
    if config.metadata.watched or not (asked or resuming):
        return config
    return config.model_copy(update={"metadata": Metadata()})


def over(history: History) -> bool:
    """Final, nothing of it runs, and everything was told."""
    return ended(history) and not history.outbox


def ended(history: History) -> bool:
    """Final, and nothing of it runs."""
    newest = history.newest
    at_rest = newest is None or newest.ended is not None or newest.submitted_at is None
    return history.state.final and at_rest


def allowed(
    actions: tuple[do.Action, ...], observation: Observation, *, complete: bool
) -> tuple[do.Action, ...]:
    """What may be done of this: before the first complete look, what rests on nothing that was not seen.

    A queue that stays silent (a supervisor started without Slurm's configuration) holds up only what needs it.
    """
    if complete or (silent(observation) and needs_no_queue(actions, observation)):
        return actions
    return tuple(action for action in actions if _harmless(action))


def _harmless(action: do.Action) -> bool:
    """To say that nothing can be seen, and to tell people."""
    unseen = isinstance(action, do.SetState) and action.state is RunState.UNKNOWN
    return unseen or isinstance(action, do.Tell)


def complete(observation: Observation) -> bool:
    """Whether this look saw what an action must rest on: the control file (or surely none) and the queue's word."""
    readable = observation.control is not None or not observation.problems
    return readable and observation.job.state is not JobState.UNKNOWN


def judged(history: History, observation: Observation) -> bool:
    """Whether this generation's failure is in the journal already, or its attempt is not, so that it has no place."""
    for attempt in history.attempts:
        if attempt.number == observation.attempt:
            for generation in attempt.generations:
                if generation.number == observation.generation:
                    return generation.failure is not None
            return False
    return True
