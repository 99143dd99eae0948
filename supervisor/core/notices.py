"""What is told while training goes on: when it begins and when it is over. One notice a cause at a time."""

from contract.config import RunConfig
from contract.events import Body, NoticeOver
from contract.history import History
from contract.states import Cause
from supervisor.core.numbers import is_over
from supervisor.core.observation import Observation
from supervisor.core.slow import fast_again, same_plan
from supervisor.core.verdict import Verdict


def is_new(history: History, verdict: Verdict) -> bool:
    """Whether this verdict is to be journalled as noticed: told, and not open under its cause."""
    known = history.notices.get(verdict.cause)
    return verdict.told and (known is None or known.over is not None)


def over(history: History, observation: Observation, config: RunConfig) -> tuple[Body, ...]:
    """The ends of notices that this look shows. What cannot be measured ends nothing."""
    curve = observation.curve
    if curve is None or (curve.attempt, curve.generation) != (observation.attempt, observation.generation):
        return ()
    found: list[Body] = []
    for cause, notice in history.notices.items():
        if notice.over is not None:
            continue
        if cause == Cause.SLOW:
            pace = curve.pace
            if pace is None:
                continue
            fast = pace.recent_s <= fast_again(notice, pace, config.monitor.slow_factor)
            reason = f"steps take {pace.recent_s:.3g} s again"
            if not same_plan(notice, pace):
                fast, reason = True, "the batch has another size now: a usual pace of its own"
        else:
            fast = curve.numbers is not None and is_over(cause, curve.numbers, dict(notice.seen.limits))
            reason = f"the numbers are as usual again at step {curve.step}"
        if fast:
            found.append(NoticeOver(cause=cause, reason=reason, step=curve.step))
    return tuple(found)
