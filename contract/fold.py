"""The fold of the journal: what each event changes in what is known of a run. Pure; the same for daemon, status, explain and replay."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from contract import events as ev
from contract import outbox
from contract.history import AttemptHistory, Failure, GenerationHistory, History, Notice
from contract.outbox import DIGEST, LASTING
from contract.profile import SLOW
from contract.states import RunState

T = TypeVar("T")
J = TypeVar("J", bound=ev.Judged)
_KEPT_TRIES = 100
_KEPT_DUMPS = 20
_KEPT_LEFT_OUT = 200
_KEPT_PROFILES = 200  # more than an attempt keeps on disk


def fold(found: Iterable[ev.Event], start: History | None = None) -> History:
    """The history after these events."""
    history = start or History()
    for event in found:
        history = apply(history, event)
    return history


def apply(history: History, event: ev.Event) -> History:
    """The history after one more event; an event of an overtaken supervisor changes nothing (rule 4)."""
    if event.epoch < history.epoch:
        return history
    rule = _RULES.get(type(event.body))
    if event.epoch > history.epoch:
        history = _with(history, epoch=event.epoch)
    return rule(history, event.body, event.time) if rule else history


def _with(value: T, **changes: Any) -> T:
    """`dataclasses.replace` without the constructor, which looks at each of some thirty fields of the history.

    A supervisor that takes up a run folds all of its events, a hundred thousand perhaps.
    """
    known = value.__dict__
    assert changes.keys() <= known.keys(), changes.keys() - known.keys()
    made: T = object.__new__(type(value))
    made.__dict__.update(known, **changes)
    return made


def _created(history: History, body: ev.RunCreated, at: float) -> History:
    return _with(
        history,
        run=body.run,
        version=body.version,
        created_at=at,
        state_at=at,
        target_steps=body.target_steps,
        target_tokens=body.target_tokens,
    )


def _on_attempt(history: History, number: int, change: Callable[[AttemptHistory], AttemptHistory]) -> History:
    """Change one attempt, the newest as a rule."""
    attempts = history.attempts
    for place in range(len(attempts) - 1, -1, -1):
        if attempts[place].number == number:
            changed = (*attempts[:place], change(attempts[place]), *attempts[place + 1 :])
            return _with(history, attempts=changed)
    return history


def _attempt_intended(history: History, body: ev.AttemptIntended, at: float) -> History:
    if any(item.number == body.attempt for item in history.attempts):
        return history
    attempt = AttemptHistory(
        number=body.attempt, tag=body.tag, reason=body.reason, intended_at=at, exclude=body.exclude
    )
    return _with(history, attempts=(*history.attempts, attempt))


def _attempt_submitted(history: History, body: ev.AttemptSubmitted, at: float) -> History:
    return _on_attempt(
        history,
        body.attempt,
        lambda item: _with(item, job_id=body.job_id, submitted_at=at, submit_failure=""),
    )


def _submit_failed(history: History, body: ev.SubmitFailed, at: float) -> History:
    return _on_attempt(
        history,
        body.attempt,
        lambda item: _with(
            item,
            submit_failures=item.submit_failures + 1,
            submit_failed_at=at,
            submit_failure=body.reason,
            submit_impossible=body.permanent,
        ),
    )


def _cancel_intended(history: History, body: ev.CancelIntended, at: float) -> History:
    return _on_attempt(
        history,
        body.attempt,
        lambda item: item if item.cancel else _with(item, cancel=body, cancelled_at=at),
    )


def _attempt_ended(history: History, body: ev.AttemptEnded, at: float) -> History:
    return _on_attempt(history, body.attempt, lambda item: _with(item, ended=body, ended_at=at))


def _on_generation(
    history: History, attempt: int, number: int, change: Callable[[GenerationHistory], GenerationHistory]
) -> History:
    """Change one generation, which comes into being when it is first heard of."""

    def in_attempt(item: AttemptHistory) -> AttemptHistory:
        known = {generation.number: generation for generation in item.generations}
        known[number] = change(known.get(number, GenerationHistory(number=number)))
        return _with(item, generations=tuple(known[key] for key in sorted(known)))

    return _on_attempt(history, attempt, in_attempt)


def _generation_intended(history: History, body: ev.GenerationIntended, at: float) -> History:
    return _on_generation(
        history,
        body.attempt,
        body.generation,
        lambda item: _with(item, members=body.members, reason=body.reason, intended_at=at),
    )


def _generation_went(history: History, body: ev.GenerationWent, at: float) -> History:
    return _on_generation(
        history, body.attempt, body.generation, lambda item: _with(item, members=body.members, went_at=at)
    )


def _generation_resumed(history: History, body: ev.GenerationResumed, at: float) -> History:
    history = _on_generation(
        history,
        body.attempt,
        body.generation,
        lambda item: _with(item, resume_step=body.step, resumed_at=at, restored_from=body.restored_from),
    )
    # An ordered roll-back stays until a generation started under it has recorded its resume point (rule 12).
    return _with(history, max_step=-1) if 0 <= body.step <= history.max_step else history


def _without_what_was_seen(body: J) -> J:
    """The observation stays in the journal, for `replay`. A supervisor would keep one for each failure, for weeks."""
    return _with(body, observation=MappingProxyType({}))


def _judged(history: History, body: ev.Judged, at: float) -> History:
    body = _without_what_was_seen(body)
    failure = Failure(at=at, verdict=body)
    history = _on_generation(
        history,
        body.attempt,
        body.generation,
        lambda item: item if item.failure else _with(item, failure=body, failed_at=at),
    )
    return _with(
        history,
        failures=(*history.failures, failure)[-1000:],
        open_failure=history.open_failure or failure,
    )


def _evidence_kept(history: History, body: ev.EvidenceKept, at: float) -> History:
    del at
    if body.order:
        kept = [*_without(history.dumps, body.order).items(), (body.order, body)][-_KEPT_DUMPS:]
        return _with(history, dumps=dict(kept))
    return _on_generation(history, body.attempt, body.generation, lambda item: _with(item, evidence=body))


def _noticed(history: History, body: ev.Noticed, at: float) -> History:
    number = 1 + max((item.number for item in history.notices.values()), default=0)
    notice = Notice(number=number, at=at, seen=_without_what_was_seen(body))
    return _with(history, notices={**history.notices, body.cause: notice})


def _notice_over(history: History, body: ev.NoticeOver, at: float) -> History:
    known = history.notices.get(body.cause)
    if known is None or known.over is not None:
        return history
    return _with(history, notices={**history.notices, body.cause: _with(known, over=body, over_at=at)})


def _recovered(history: History, body: ev.Recovered, at: float) -> History:
    del at
    told = {key for notice in history.notices.values() for key in (notice.key, notice.over_key)}
    told |= {key for key in history.open_keys if key.startswith(LASTING)}
    history = _on_generation(history, body.attempt, body.generation, lambda item: _with(item, recovered=body))
    return _with(
        history,
        open_failure=None,
        open_keys=history.open_keys & told,
        faults=(*history.faults, body)[-10_000:],
    )


def _checkpoint_seen(history: History, body: ev.CheckpointSeen, at: float) -> History:
    del at
    kept = tuple(item for item in history.failures if not _is_past(body, item.verdict))
    if history.open_failure is None:  # recovered, and a checkpoint since: the incident is over
        history = _incident_over(history)
    return _with(
        history,
        newest_checkpoint=body,
        failures=kept,
        min_step=max(history.min_step, 1),
        saves_failing=False,
    )


def _save_failed(history: History, body: ev.SaveFailed, at: float) -> History:
    since = history.saves_failing_since if history.saves_failing else at
    return _with(history, save_failure=body, saves_failing=True, saves_failing_since=since)


def _left_out(history: History, body: ev.NodeLeftOut, at: float) -> History:
    return _with(history, left_out=(*history.left_out, (at, body))[-_KEPT_LEFT_OUT:])


def _batch_changed(history: History, body: ev.BatchChanged, at: float) -> History:
    del at
    return _with(history, batch_change=body)


def _is_past(saved: ev.CheckpointSeen, failure: ev.Judged) -> bool:
    """Whether this checkpoint proves that the run has got beyond the failure.

    Numbers that went wrong are seen some steps later, and the generation may save until it is ended: as wrong.
    """
    seen = failure.limits.get("seen")
    first = seen + 1 if isinstance(seen, int) else failure.step
    later = (saved.attempt, saved.generation) > (failure.attempt, failure.generation)
    return saved.step >= first and (later or seen is None)


def _state_changed(history: History, body: ev.StateChanged, at: float) -> History:
    words = {state.value: state for state in RunState}
    history = _with(history, state=words.get(body.state, RunState.UNKNOWN), reason=body.reason, state_at=at)
    if history.state is RunState.PENDING:  # resumed by a person: a new budget, and alerts speak again
        history = _with(_incident_over(history), failures=(), notices={}, open_keys=frozenset())
    return history


def _incident_over(history: History) -> History:
    if not history.incident_keys and history.acknowledged is None:
        return history
    return _with(history, incident_keys=frozenset(), acknowledged=None, acknowledged_at=0.0)


def _queue_silent(history: History, body: ev.QueueSilent, at: float) -> History:
    return _with(history, queue_silent=(at - body.silent_s, body.reason))


def _queue_answered(history: History, body: ev.QueueAnswered | ev.SupervisorStarted, at: float) -> History:
    """A supervisor that has just come finds out for itself."""
    del body, at
    return _with(history, queue_silent=None)


def _bounds_set(history: History, body: ev.BoundsSet, at: float) -> History:
    del at
    return _with(history, min_step=body.min_step, max_step=body.max_step, skip_windows=body.skip_windows)


def _settings_changed(history: History, body: ev.SettingsChanged, at: float) -> History:
    del at
    return _with(
        history,
        changed_for=body.request,
        target_steps=body.target_steps,
        target_tokens=body.target_tokens,
        hot={key: value for key, value in history.hot.items() if key not in body.hot_dropped},
    )


def _request_taken(history: History, body: ev.RequestTaken, at: float) -> History:
    del at
    return _with(history, requests={**history.requests, body.id: body})


def _request_done(history: History, body: ev.RequestDone, at: float) -> History:
    del at
    return _with(history, requests=_without(history.requests, body.id))


def _hot_set(history: History, body: ev.HotSet, at: float) -> History:
    del at
    return _with(history, hot={**history.hot, **body.values})


def _profile_asked(history: History, body: ev.ProfileAsked, at: float) -> History:
    del at
    asked = [*_without(history.profiles_asked, body.order).items(), (body.order, body)][-_KEPT_DUMPS:]
    slow = history.slow_profiles + body.order.startswith(SLOW)
    return _with(history, profiles_asked=dict(asked), slow_profiles=slow)


def _profile_kept(history: History, body: ev.ProfileKept, at: float) -> History:
    del at
    return _with(history, profiles=(*history.profiles, body)[-_KEPT_PROFILES:])


def _alert_queued(history: History, body: ev.AlertQueued, at: float) -> History:
    kept, given_up = outbox.queued(history.outbox, body, at)
    incident = {body.key} if body.severity != "info" else set()
    history = _with(
        history,
        outbox=kept,
        # What an end closes may come again, and end again.
        open_keys=(history.open_keys - {body.ends}) if body.ends else history.open_keys | {body.key},
        incident_keys=history.incident_keys | incident,
        alerts_failed=history.alerts_failed + given_up,
    )
    return _digest_queued(history, body, at) if body.key.startswith(DIGEST) else history


def _digest_queued(history: History, body: ev.AlertQueued, at: float) -> History:
    day = body.key.removeprefix(DIGEST)
    days = {**history.digests, **dict.fromkeys(body.receivers, (day, at))}
    return _with(history, digests=days, open_keys=history.open_keys - {body.key})


def _alert_tried(history: History, body: ev.AlertTried, at: float) -> History:
    sent = (*history.sent_at, (body.receiver, body.at or at))[-_KEPT_TRIES:]
    return _with(history, sent_at=sent, outbox=outbox.tried(history.outbox, body, at))


def _alert_delivered(history: History, body: ev.AlertDelivered, at: float) -> History:
    del at
    kept, gone = outbox.done(history.outbox, body)
    return _with(history, outbox=kept, alerts_sent=history.alerts_sent + gone)


def _alert_failed(history: History, body: ev.AlertFailed, at: float) -> History:
    if not body.permanent:
        return _with(history, outbox=outbox.failed(history.outbox, body, at))
    kept, gone = outbox.done(history.outbox, body)
    return _with(history, outbox=kept, alerts_failed=history.alerts_failed + gone)


def _acknowledged(history: History, body: ev.AlertsAcknowledged, at: float) -> History:
    return _with(history, acknowledged=body, acknowledged_at=at)


def _silenced(history: History, body: ev.AlertsSilenced, at: float) -> History:
    del at
    return _with(history, silenced_until=body.until, silenced_by=body.by)


def _without(mapping: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in keys}


_RULES: Mapping[type[ev.Body], Callable[[History, Any, float], History]] = MappingProxyType(
    {
        ev.RunCreated: _created,
        ev.SupervisorStarted: _queue_answered,
        ev.QueueSilent: _queue_silent,
        ev.QueueAnswered: _queue_answered,
        ev.AttemptIntended: _attempt_intended,
        ev.AttemptSubmitted: _attempt_submitted,
        ev.SubmitFailed: _submit_failed,
        ev.CancelIntended: _cancel_intended,
        ev.AttemptEnded: _attempt_ended,
        ev.GenerationIntended: _generation_intended,
        ev.GenerationWent: _generation_went,
        ev.GenerationResumed: _generation_resumed,
        ev.Judged: _judged,
        ev.EvidenceKept: _evidence_kept,
        ev.Noticed: _noticed,
        ev.NoticeOver: _notice_over,
        ev.Recovered: _recovered,
        ev.CheckpointSeen: _checkpoint_seen,
        ev.SaveFailed: _save_failed,
        ev.NodeLeftOut: _left_out,
        ev.BatchChanged: _batch_changed,
        ev.StateChanged: _state_changed,
        ev.BoundsSet: _bounds_set,
        ev.SettingsChanged: _settings_changed,
        ev.RequestTaken: _request_taken,
        ev.RequestDone: _request_done,
        ev.HotSet: _hot_set,
        ev.ProfileAsked: _profile_asked,
        ev.ProfileKept: _profile_kept,
        ev.AlertQueued: _alert_queued,
        ev.AlertTried: _alert_tried,
        ev.AlertDelivered: _alert_delivered,
        ev.AlertFailed: _alert_failed,
        ev.AlertsAcknowledged: _acknowledged,
        ev.AlertsSilenced: _silenced,
    }
)
