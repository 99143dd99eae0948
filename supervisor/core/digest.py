"""The daily digest of one run: state, step, effective training time, failures and lost time by cause.

Each run puts its own line into its outbox when the reader's hour has come; the outbox of the robot makes one message
of all of them.
"""

from collections import Counter

from contract.config import RunConfig
from contract.config.alerts import Receiver
from contract.events import AlertQueued
from contract.history import History
from contract.outbox import DIGEST
from supervisor.core.hours import digest_day
from supervisor.core.lost_time import ettr
from supervisor.core.observation import Observation
from supervisor.core.phrases import CAUSES, STATES, word
from supervisor.core.status import step_of
from supervisor.core.text import cut, duration

_DAY_S = 86_400.0
_LANGUAGES = ("zh", "en")
_LINE_BYTES = 400


def digests(
    history: History, observation: Observation, config: RunConfig, now: float
) -> tuple[AlertQueued, ...]:
    """One for each receiver whose hour has come and that has not had this day's. A run that is over comes once."""
    found = []
    for receiver in config.alerts.receivers:
        due = digest_day(receiver, now)
        if due is None or not history.run or not _wanted(history, receiver, *due):
            continue
        text = {language: _line(history, observation, now, language) for language in _LANGUAGES}
        found.append(
            AlertQueued(
                id=f"digest-{due[0]}-{receiver.name}",
                key=f"{DIGEST}{due[0]}",
                severity="info",
                title=text,
                text=text,
                receivers=(receiver.name,),
            )
        )
    return tuple(found)


def _wanted(history: History, receiver: Receiver, day: str, at: float) -> bool:
    newest, told_at = history.digests.get(receiver.name, ("", 0.0))
    if newest >= day or history.created_at > at:
        return False
    told_since = bool(newest) and told_at >= history.state_at
    return not history.state.final or (history.state_at > at - _DAY_S and not told_since)


def _line(history: History, observation: Observation, now: float, language: str) -> str:
    zh = language == "zh"
    parts = [word(STATES, history.state, language)]
    step, target = step_of(history, observation), history.target_steps
    if step is not None:
        reached = f"{step}/{target}" if target else f"{step}"
        parts.append(f"第 {reached} 步" if zh else f"step {reached}")
    share = ettr(history, observation, now)
    if share is not None:
        parts.append(f"有效训练时间 {share:.1%}" if zh else f"effective time {share:.1%}")
    parts += _faults(history, now, language)
    joined = ("，" if zh else ", ").join(parts)
    return cut(f"{history.run}{'：' if zh else ': '}{joined}", _LINE_BYTES)


def _faults(history: History, now: float, language: str) -> list[str]:
    """Failures of the last 24 hours, and the time that those which are over have cost, each by cause."""
    zh = language == "zh"
    causes: Counter[str] = Counter()
    lost: dict[str, float] = {}
    steps = 0
    over = {(item.failed_attempt, item.failed_generation): item for item in history.faults}
    for attempt in history.attempts:
        for generation in attempt.generations:
            failure = generation.failure
            if failure is None or generation.failed_at is None or generation.failed_at < now - _DAY_S:
                continue
            causes[failure.cause] += 1
            found = over.get((attempt.number, generation.number))
            if found is not None:
                lost[failure.cause] = lost.get(failure.cause, 0.0) + found.detect_s + found.restart_s
                steps += found.repeated_steps
    if not causes:
        return ["24 小时内无故障" if zh else "no failure in 24 h"]
    names = ("、" if zh else ", ").join(
        f"{word(CAUSES, cause, language)} {count}" for cause, count in causes.most_common(4)
    )
    total = sum(causes.values())
    told = [f"24 小时内故障 {total} 次（{names}）" if zh else f"{total} failures in 24 h ({names})"]
    if lost:
        times = ("、" if zh else ", ").join(
            f"{word(CAUSES, cause, language)} {duration(seconds, language)}"
            for cause, seconds in sorted(lost.items(), key=lambda item: -item[1])[:4]
        )
        told.append(
            f"损失 {duration(sum(lost.values()), language)}（{times}），重算 {steps} 步"
            if zh
            else f"lost {duration(sum(lost.values()), language)} ({times}), {steps} steps twice"
        )
    return told
