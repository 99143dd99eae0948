"""What a supervisor would make of what one look saw: what it would do, and the state that it would record."""

from dataclasses import replace

from contract.config import RunConfig
from contract.config.run import Metadata
from contract.events import Event
from contract.fold import fold
from contract.history import History
from contract.states import RunState, VerdictKind
from supervisor.care import judged
from supervisor.core.actions import Action, SetState
from supervisor.core.decide import decide
from supervisor.reading import Reading
from supervisor.record import judgement

# What a look tells by itself. That a run recovers, or has failed for good, is only true once somebody acts on it.
_SEEN = frozenset({RunState.STARTING, RunState.RUNNING, RunState.UNKNOWN, RunState.COMPLETED})


def coming(reading: Reading, now: float) -> tuple[Action, ...]:
    """What a supervisor would do at this look; a failure that nobody has recorded yet is recorded first."""
    return decide(recorded(reading, now), reading.observation, reading.verdict, reading.config, now)


def as_seen(reading: Reading, now: float) -> Reading:
    """The reading of a run whose state nobody keeps true, with the state that this look shows."""
    history, config = recorded(reading, now), _cared_for(reading.config)
    if history.state.final:
        return reading
    actions = decide(history, reading.observation, reading.verdict, config, now)
    states = [action.state for action in actions if isinstance(action, SetState) and action.state in _SEEN]
    if reading.verdict.kind is VerdictKind.UNKNOWN:  # a supervisor doubts for a while: it looks again
        states.append(RunState.UNKNOWN)
    if not states:
        return reading
    state, reason = states[-1], reading.verdict.reason
    return replace(reading, history=replace(reading.history, state=state, reason=reason))


def recorded(reading: Reading, now: float) -> History:
    """The history with the failure that this look shows."""
    history = reading.history
    if not reading.verdict.failed or judged(history, reading.observation):
        return history
    body = judgement(reading.observation, reading.verdict)
    return fold([Event(seq=0, time=now, epoch=history.epoch, body=body)], history)


def _cared_for(config: RunConfig) -> RunConfig:
    """The configuration as if the run were neither left alone nor only observed: no state of such a run is recorded."""
    policy = config.supervisor.model_copy(update={"observe_only": False})
    return config.model_copy(update={"supervisor": policy, "metadata": Metadata()})
