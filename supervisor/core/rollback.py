"""Numbers that are wrong: whether that is the end, and from where to go on when it is not."""

import re

from contract.config import RunConfig
from contract.events import Judged
from contract.history import History
from contract.states import Cause, VerdictKind
from supervisor.core.actions import SetBounds
from supervisor.core.budget import Stop, stop_reason
from supervisor.core.case import Case
from supervisor.core.numbers import rule_for

# As the trainer says it, at the end of its exception's text.
_POSITIONS = re.compile(r"sampler positions \[(\d+), (\d+)\)")
_ENDS = {
    "stop": Stop(
        en="numerics.on_nan = stop: numbers that are not finite end the run",
        zh="numerics.on_nan = stop：出现 NaN/Inf 即停止",
    ),
    "skip": Stop(
        en="dropping steps did not help (numerics.on_nan = skip)",
        zh="跳过这些步没有效果（numerics.on_nan = skip）",
    ),
    "lower-scale": Stop(
        en="lowering the loss scale did not help (numerics.on_nan = lower-scale)",
        zh="降低 loss scale 没有效果（numerics.on_nan = lower-scale）",
    ),
}


def stop_or_go(history: History, failure: Judged, config: RunConfig) -> Stop | None:
    """Why this failure ends the run; None when a restart is earned."""
    policy = config.supervisor
    if failure.verdict == VerdictKind.DIVERGED:
        rule = rule_for(Cause(failure.cause), config)
        if rule == "stop":
            return Stop(
                en=f"the policy for {failure.cause} is to stop",
                zh="策略要求出现此类异常即停止",
            )
        limit = max(policy.same_failure_limit, config.numerics.roll_back_limit)
        return stop_reason(history, failure, policy.model_copy(update={"same_failure_limit": limit}))
    if failure.cause == Cause.NAN and window_of(failure) is not None:
        if config.numerics.on_nan in _ENDS:
            return _ENDS[config.numerics.on_nan]
        # The same step again, but with other data: it is a proof against the model only after some tries.
        limit = max(policy.same_failure_limit, config.numerics.roll_back_limit)
        policy = policy.model_copy(update={"same_failure_limit": limit})
    return stop_reason(history, failure, policy)


def roll_back(case: Case, failure: Judged) -> tuple[SetBounds, ...]:
    """Before the restart: the newest checkpoint before the step, and its data jumped from now on. Once a failure."""
    window, history = jumped_window(failure, case.config), case.history
    if window is None:
        return _only_back(case, failure)
    if any(start <= window[0] and window[1] <= end for start, end in history.skip_windows):
        return ()
    found = case.observation.checkpoint
    before = found.step if found is not None and found.step <= failure.step else failure.step
    return (
        SetBounds(
            min_step=history.min_step,
            max_step=before if found is not None else -1,
            skip_windows=joined((*history.skip_windows, window)),
            reason=failure.reason,
        ),
    )


def _only_back(case: Case, failure: Judged) -> tuple[SetBounds, ...]:
    """The program does not tell which data it was: go back before the step, and jump nothing."""
    back = failure.verdict == VerdictKind.DIVERGED and case.history.max_step != failure.step
    if not back:
        return ()
    return (
        SetBounds(
            min_step=case.history.min_step,
            max_step=failure.step,
            skip_windows=case.history.skip_windows,
            reason=failure.reason,
        ),
    )


def jumped_window(failure: Judged, config: RunConfig) -> tuple[int, int] | None:
    """The data that the restart after this failure leaves out; None where the policy or the failure names none."""
    rolls_back = failure.cause == Cause.NAN and config.numerics.on_nan == "roll-back"
    if failure.verdict == VerdictKind.DIVERGED:
        rolls_back = rule_for(Cause(failure.cause), config) == "rollback"
    return window_of(failure) if rolls_back else None


def window_of(failure: Judged) -> tuple[int, int] | None:
    """The half-open range of sampler positions whose data was in the step, where the program tells it."""
    for text in (failure.reason, *reversed(failure.lines)):
        found = _POSITIONS.search(text)
        if found and int(found[1]) < int(found[2]):
            return int(found[1]), int(found[2])
    return None


def joined(windows: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Windows in order, those that touch as one: the list stays short however long the run."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)
