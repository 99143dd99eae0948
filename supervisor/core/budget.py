"""Whether another restart is earned, and when (design rule 10). Counted from the journal, never from memory."""

import zlib
from dataclasses import dataclass

from contract.config.supervision import Rule, Supervisor
from contract.events import Judged
from contract.history import History
from contract.states import Cause, VerdictKind

INFRASTRUCTURE = frozenset(
    {Cause.TIME_LIMIT, Cause.PREEMPTED, Cause.NODE_FAILURE, Cause.CANCELLED, Cause.SLOW}
)
# A full disk stops the run wherever it is: the place is chance.
_ANYWHERE = frozenset({Cause.DISK_FULL})
_JITTER = 0.25


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why the run is stopped instead of restarted."""

    en: str
    zh: str


def stop_reason(history: History, failure: Judged, policy: Supervisor) -> Stop | None:
    """None when a restart is earned. First match wins."""
    cause, rule = Cause(failure.cause), policy.rules.get(Cause(failure.cause), Rule())
    if failure.verdict == VerdictKind.REFUSED:
        return Stop(en=f"training was refused: {failure.reason}", zh="训练程序拒绝启动")
    if rule.retry == "never":
        return Stop(
            en=f"[supervisor.rules.{cause}] retry = never: {failure.reason}",
            zh=f"[supervisor.rules.{cause}] 规定不重试",
        )
    if cause is Cause.CONFIG and rule.retry == "catalogue":
        return Stop(en=f"a configuration error is never retried: {failure.reason}", zh="配置错误不会重试")
    times = 0 if rule.retry == "always" else _same_in_a_row(history, failure)
    if times >= policy.same_failure_limit:
        where = f"at step {failure.step}" if failure.step >= 0 else "before the first step"
        return Stop(
            en=f"the same failure {times} times in a row {where} ({failure.cause}): {failure.reason}",
            zh=f"同一故障在同一步（第 {failure.step} 步之后）连续出现 {times} 次，重试无用",
        )
    return _class_is_spent(history, failure, rule) or _all_is_spent(history, failure, policy)


def _class_is_spent(history: History, failure: Judged, rule: Rule) -> Stop | None:
    """The budget of its class, where the team set one."""
    count = sum(item.verdict.cause == failure.cause for item in history.failures)
    if not rule.budget or count < rule.budget:
        return None
    return Stop(
        en=f"{count} times {failure.cause} without a new checkpoint between them"
        f" ([supervisor.rules.{failure.cause}] budget = {rule.budget}): {failure.reason}",
        zh=f"同类故障 {count} 次，其间没有新的检查点（[supervisor.rules.{failure.cause}] 上限 {rule.budget} 次）",
    )


def _all_is_spent(history: History, failure: Judged, policy: Supervisor) -> Stop | None:
    own = infrastructure(failure)
    count = sum(infrastructure(item.verdict) is own for item in history.failures)
    limit = policy.max_infrastructure_failures if own else policy.max_failures
    if count < limit:
        return None
    kind, word = ("infrastructure failures", "基础设施故障") if own else ("failures", "故障")
    return Stop(
        en=f"{count} {kind} without a new checkpoint between them (limit {limit}); the last: {failure.reason}",
        zh=f"{count} 次{word}之间没有新的检查点（上限 {limit} 次）",
    )


def infrastructure(failure: Judged) -> bool:
    """Whether this failure is the cluster's and not the program's: it has a budget of its own."""
    return failure.cause in INFRASTRUCTURE


def restart_at(history: History, failure: Judged, failed_at: float, policy: Supervisor, now: float) -> float:
    """When the restart may happen: the first at once, then after a wait that doubles, give or take a quarter.

    Two runs that failed together do not start together: each failure has its own share, always the same.
    """
    if failure.verdict in {VerdictKind.SAVED, VerdictKind.DIVERGED, VerdictKind.TOO_SLOW}:
        return now  # planned, or it trains until it is ended: nothing is gained by waiting
    before = len(history.failures) - 1
    place = f"{history.run} {failure.attempt} {failure.generation}"
    wait = jittered(backoff(before, policy.backoff_s, policy.backoff_max_s), place)
    # A failure that lies in the future was recorded by another clock: waiting for it would be waiting for chance.
    return failed_at + wait if failed_at <= now else now


def backoff(before: int, first_s: float, most_s: float) -> float:
    """Wait after `before` earlier failures: none, then first_s, doubling."""
    return min(most_s, first_s * 2.0 ** min(before - 1, 40)) if before > 0 else 0.0


def jittered(wait_s: float, place: str) -> float:
    """The wait, a quarter more or less as `place` has it: no chance is drawn, so that every tick says the same."""
    share = zlib.crc32(place.encode()) / 0xFFFF_FFFF
    return wait_s * (1.0 - _JITTER + 2 * _JITTER * share)


def _same_in_a_row(history: History, failure: Judged) -> int:
    """How often this failure came last, one after the other. Failures that never are deterministic do not count."""
    if not failure.signature:
        return 0
    times = 0
    for item in reversed(history.failures):
        other = item.verdict
        if not other.signature:
            continue
        same_place = other.step == failure.step or failure.cause in _ANYWHERE
        if other.signature != failure.signature or not same_place:
            break
        times += 1
    return times
