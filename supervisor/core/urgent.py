"""When a run waits for the queue's next word, so that it is asked sooner than usual. Pure."""

from supervisor.core.case import Case

_PATIENCE_S = 60.0  # what the queue has not said by then is not hurried by asking


def waits_for_queue(case: Case) -> bool:
    """Whether a failure is unanswered, a job was told to end, or all agents have just fallen silent together."""
    newest = case.newest
    if newest is None or newest.ended is not None or not case.seen or case.job_over:
        return False
    waited = [case.since_failure_s] if case.failure is not None else []
    if newest.cancelled_at is not None:
        waited.append(case.now - newest.cancelled_at)
    return any(0 <= since_s < _PATIENCE_S for since_s in (*waited, _silent_together_s(case)))


def _silent_together_s(case: Case) -> float:
    """For how long no agent of this attempt has been seen to live; negative while one is."""
    ours = [
        seen.silent_s
        for seen in case.observation.nodes
        if seen.beat is not None and seen.beat.attempt == case.observation.attempt
    ]
    return min(ours) - case.fresh_s if ours else -1.0
