"""DIVERGED or DIVERGING: loss, gradient norm or loss scale have left the run's own curve (operation B2)."""

from collections.abc import Callable

from contract.config import RunConfig
from contract.states import Cause, VerdictKind
from supervisor.core.curve import Numbers
from supervisor.core.look import Look
from supervisor.core.verdict import Verdict

SPIKE_STEPS = 5  # a spike that comes down by itself sooner is told by nobody
_AT_MINIMUM_STEPS = 8
_DROPPED = 16  # of 64
_RULES: dict[str, str] = {"roll-back": "rollback", "stop": "stop", "skip": "tell", "lower-scale": "tell"}


def judge_numbers(look: Look) -> Verdict | None:
    """The first class of trouble that shows, with the policy's answer; None when the numbers are as usual.

    Only rows of the generation that is watched count: those before a roll-back have been answered.
    """
    curve = look.observation.curve
    at = (look.observation.attempt, look.observation.generation)
    if curve is None or curve.numbers is None or (curve.attempt, curve.generation) != at:
        return None
    for cause, describe in _CLASSES:
        rule = rule_for(cause, look.config)
        what = describe(curve.numbers, look.config)
        if what and rule != "ignore":
            return _verdict(look, cause, what, curve.numbers, rule)
    return None


def rule_for(cause: Cause, config: RunConfig) -> str:
    """ignore, tell, rollback or stop. Numbers that are not finite follow [numerics] and are never ignored."""
    if cause is Cause.NAN:
        return _RULES[config.numerics.on_nan]
    return config.monitor.on_loss_spike if cause is Cause.LOSS_SPIKE else config.monitor.on_loss_scale


def is_over(cause: str, numbers: Numbers, limits: object) -> bool:
    """Whether what was noticed with these limits is over. The curve has moved on since: the old limit counts."""
    known = limits if isinstance(limits, dict) else {}
    match cause:
        case Cause.NAN:
            return numbers.not_finite == 0 and numbers.dropped < _DROPPED // 2
        case Cause.LOSS_SCALE:
            return numbers.at_minimum == 0
        case _:
            limit, value = known.get("limit"), numbers.norm if known.get("by_norm") else numbers.loss
            return numbers.spiking == 0 and (not isinstance(limit, float) or value <= limit)


def _not_finite(numbers: Numbers, _config: RunConfig) -> str:
    if numbers.not_finite:
        return f"the loss is not finite since step {numbers.last_good + 1}"
    if numbers.dropped >= _DROPPED:
        return f"{numbers.dropped} of the last 64 steps were dropped for their numbers"
    return ""


def _spike(numbers: Numbers, _config: RunConfig) -> str:
    if numbers.spiking < SPIKE_STEPS:
        return ""
    if numbers.by_norm:
        what, value, usual, limit = "gradient norm", numbers.norm, numbers.norm_usual, numbers.norm_limit
    else:
        what, value, usual, limit = "loss", numbers.loss, numbers.loss_usual, numbers.loss_limit
    return f"{what} {value:.4g} for {numbers.spiking} steps, usual {usual:.4g} (limit {limit:.4g})"


def _scale(numbers: Numbers, config: RunConfig) -> str:
    if config.precision.dtype != "fp16" or numbers.at_minimum < _AT_MINIMUM_STEPS:
        return ""
    return f"the loss scale has been at its minimum for {numbers.at_minimum} steps"


_CLASSES: tuple[tuple[Cause, Callable[[Numbers, RunConfig], str]], ...] = (
    (Cause.NAN, _not_finite),
    (Cause.LOSS_SPIKE, _spike),
    (Cause.LOSS_SCALE, _scale),
)


def _verdict(look: Look, cause: Cause, what: str, numbers: Numbers, rule: str) -> Verdict:
    """Rolled back only where there is a checkpoint to go back to, and when something shows from where on it is bad."""
    observation = look.observation
    last_good = numbers.last_good if numbers.last_good >= 0 else observation.step
    checkpoint = observation.checkpoint
    reachable = checkpoint is not None and checkpoint.up_to(last_good) is not None
    if rule == "rollback" and not reachable:
        what += "; no checkpoint before it to go back to"
    ends = rule == "stop" or (rule == "rollback" and reachable)
    where = ""
    if cause is not Cause.LOSS_SCALE and 0 <= numbers.start < numbers.end:
        where = f", sampler positions [{numbers.start}, {numbers.end})"
    return Verdict(
        kind=VerdictKind.DIVERGED if ends else VerdictKind.DIVERGING,
        reason=f"{what}{where}",
        cause=cause,
        step=last_good,
        signature=f"{cause}|metrics" if ends else "",
        limits={
            "what": what,
            "rule": rule,
            "seen": max(observation.step, last_good),
            "by_norm": numbers.by_norm,
            "value": numbers.norm if numbers.by_norm else numbers.loss,
            "usual": numbers.norm_usual if numbers.by_norm else numbers.loss_usual,
            "limit": numbers.norm_limit if numbers.by_norm else numbers.loss_limit,
            "steps": max(numbers.spiking, numbers.not_finite, numbers.at_minimum),
        },
    )
