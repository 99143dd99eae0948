"""What a look adds to the journal although nobody decided it: the world has moved."""

from contract.beat import UNFIT
from contract.events import (
    BatchChanged,
    Body,
    CheckpointSeen,
    GenerationResumed,
    GenerationWent,
    Judged,
    NodeLeftOut,
    Recovered,
    SaveFailed,
)
from contract.history import GenerationHistory, History
from contract.states import ControlPhase, Phase
from supervisor.core.asked import RESUMED
from supervisor.core.causes import cause_in
from supervisor.core.look import MUTE_S, attempt_of
from supervisor.core.observation import Observation


def news(history: History, observation: Observation) -> tuple[Body, ...]:
    """Events to append before this tick's verdict: a checkpoint comes before the failure that follows it."""
    return (
        *_went(history, observation),
        *_resumed(history, observation),
        *_checkpoint(history, observation),
        *_save_failed(history, observation),
        *_left_out(history, observation),
        *_batch_changed(history, observation),
    )


def recovered(history: History, observation: Observation, now: float) -> Recovered | None:
    """The recovery from the open failure, once every worker of a later generation has done a new step."""
    failure, at = history.open_failure, (observation.attempt, observation.generation)
    if failure is None or at != history.at or at <= (failure.verdict.attempt, failure.verdict.generation):
        return None
    resumed = _taken_over_at(observation, failure.verdict)
    if resumed is None or _has_failed(history):
        return None
    begun, attempt = failure.at, history.newest
    if attempt is not None and attempt.reason.startswith(RESUMED):
        begun = max(begun, attempt.intended_at)  # a person's time to think is no restart time
    reached = max((item.step for item in _failures_since(history)), default=failure.verdict.step)
    return Recovered(
        attempt=observation.attempt,
        generation=observation.generation,
        step=observation.step,
        failed_attempt=failure.verdict.attempt,
        failed_generation=failure.verdict.generation,
        detect_s=round(failure.verdict.detected_s, 3),
        restart_s=round(max(0.0, now - begun), 3),
        repeated_steps=max(0, reached - resumed),
    )


def _taken_over_at(observation: Observation, failure: Judged) -> int | None:
    """The step from which the new generation goes on; None until its restart has gone well."""
    resumed = observation.resume_step
    if resumed is not None:
        return resumed if _all_moved(observation, resumed) else None
    return max(0, failure.step) if _runs_mute(observation) else None


def _runs_mute(observation: Observation) -> bool:
    """Whether workers that never mark their page have run for long enough to say that the restart went well."""
    workers = [worker for _, worker in observation.workers]
    return bool(workers) and all(
        worker.exit_code is None and worker.phase is Phase.UNKNOWN and worker.idle_s > MUTE_S
        for worker in workers
    )


def _went(history: History, observation: Observation) -> tuple[Body, ...]:
    """The go of generation 1 is its agents' work; of later ones the event is written before control.json."""
    control = observation.control
    started = observation.generation == 1 or (control is not None and control.phase is ControlPhase.GO)
    known = _generation(history, observation)
    if (
        not observation.members
        or not observation.port
        or not started
        or (known and known.went_at is not None)
    ):
        return ()
    if attempt_of(history, observation.attempt) is None:
        return ()
    return (
        GenerationWent(
            attempt=observation.attempt,
            generation=observation.generation,
            members=observation.members,
            master=observation.master,
            port=observation.port,
        ),
    )


def _resumed(history: History, observation: Observation) -> tuple[Body, ...]:
    step, known = observation.resume_step, _generation(history, observation)
    if step is None or (known and known.resume_step is not None):
        return ()
    if attempt_of(history, observation.attempt) is None:
        return ()
    return (
        GenerationResumed(
            attempt=observation.attempt,
            generation=observation.generation,
            step=step,
            restored_from=observation.restored_from,
        ),
    )


def _checkpoint(history: History, observation: Observation) -> tuple[Body, ...]:
    """A new one lies further, or was written by a later generation after a step back. The same step is no progress."""
    found, known = observation.checkpoint, history.newest_checkpoint
    if found is None:
        return ()
    if known is not None:
        later = (found.attempt, found.generation) > (known.attempt, known.generation)
        if found.step == known.step or (found.step < known.step and not later):
            return ()
    return (CheckpointSeen(step=found.step, attempt=found.attempt, generation=found.generation),)


def _save_failed(history: History, observation: Observation) -> tuple[Body, ...]:
    """What rank 0 says of its newest save. The words name the checkpoint, so that one failure is told once."""
    said = next((worker for _, worker in observation.workers if worker.save_error), None)
    known = history.save_failure
    at = (observation.attempt, observation.generation)
    if said is None or at != history.at or (known is not None and known.reason == said.save_error):
        return ()
    cause = cause_in(said.save_error)
    return (SaveFailed(attempt=at[0], generation=at[1], step=said.step, cause=cause, reason=said.save_error),)


def _left_out(history: History, observation: Observation) -> tuple[Body, ...]:
    """Nodes whose agents have left because they are not fit, each once an attempt."""
    if attempt_of(history, observation.attempt) is None:
        return ()
    known = {(body.attempt, body.node) for _, body in history.left_out}
    beats = (seen.beat for seen in observation.nodes if seen.beat is not None)
    return tuple(
        NodeLeftOut(attempt=beat.attempt, node=beat.node, reason=str(beat.health[UNFIT]["why"]))
        for beat in beats
        if UNFIT in beat.health
        and beat.attempt == observation.attempt
        and (beat.attempt, beat.node) not in known
    )


def _batch_changed(history: History, observation: Observation) -> tuple[Body, ...]:
    """What the metrics tell of since the newest change that stands here."""
    known = history.batch_change
    last = (known.attempt, known.generation, known.step) if known else (0, 0, 0)
    found = observation.curve.changes if observation.curve else ()
    return tuple(
        BatchChanged(attempt=item.attempt, generation=item.generation, step=item.step, reason=item.reason)
        for item in found
        if (item.attempt, item.generation, item.step) > last
    )


def _generation(history: History, observation: Observation) -> GenerationHistory | None:
    attempt = attempt_of(history, observation.attempt)
    found = [item for item in attempt.generations if item.number == observation.generation] if attempt else []
    return found[0] if found else None


def _has_failed(history: History) -> bool:
    newest = history.newest.newest if history.newest else None
    return newest is not None and newest.failure is not None


def _all_moved(observation: Observation, resumed: int) -> bool:
    """Every member reports workers, and each has done a step since the resume."""
    reporting = {seen.node for seen, _ in observation.workers}
    moved = all(worker.step > resumed for _, worker in observation.workers)
    return bool(reporting) and set(observation.members) <= reporting and moved


def _failures_since(history: History) -> list[Judged]:
    """Failures from the open one on."""
    first = history.open_failure
    if first is None:
        return []
    start = (first.verdict.attempt, first.verdict.generation)
    found = [generation.failure for attempt in history.attempts for generation in attempt.generations]
    return [item for item in found if item is not None and (item.attempt, item.generation) >= start]
