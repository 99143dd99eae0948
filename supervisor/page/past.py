"""What a run has been through, for its page: the strip of its life, incidents, changed settings, the newest sentences.

From the journal alone, and only when it has grown. Everything is named, so that one more of a kind is a small change.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contract import events as ev
from contract.history import AttemptHistory, GenerationHistory, History
from supervisor.core.failure_words import sentence
from supervisor.core.lost_time import LostTime
from supervisor.core.reasons import chinese, failures_of
from supervisor.core.story import story
from supervisor.core.text import one_line
from supervisor.page.words import Pair
from supervisor.report.facts import attempt_facts, of_kind
from supervisor.report.timeline import stretches

_STRETCHES, _INCIDENTS, _CHANGES, _SENTENCES, _SAVED = 400, 60, 40, 40, 200
_LINES, _LINE_BYTES = 8, 300


def past(history: History, events: Sequence[ev.Event], lost: LostTime) -> dict[str, Any]:
    """`events`: the newest of the journal."""
    return {
        "life": _life(history, events),
        "incidents": _incidents(history, lost),
        "notices": _notices(history),
        "checkpoints": {
            str(body.step): [at, body.attempt, body.generation]
            for at, body in [*of_kind(events, ev.CheckpointSeen)][-_SAVED:]
        },
        "changed": _changed(events),
        "story": _story(events),
        "time": {
            "effective": None if lost.ratio is None else round(lost.ratio, 4),
            "lost_s": None if lost.lost_s is None else round(lost.lost_s, 1),
            "faults": len(lost.faults),
            "jobs": len(history.attempts),
            "starts": sum(len(attempt.generations) for attempt in history.attempts),
        },
    }


def clean(line: str) -> str:
    """A sentence or a line of a log as plain text, and not endless."""
    return one_line(line, _LINE_BYTES)


def pair(reason: str, failures: Mapping[str, str]) -> Pair:
    """A reason in both languages."""
    return [reason, chinese(reason, failures)]


def _life(history: History, events: Sequence[ev.Event]) -> dict[str, Any]:
    jobs, work = {}, []
    for attempt in history.attempts[-_STRETCHES:]:
        facts = attempt_facts(attempt)
        end = history.state_at if history.state.final else math.inf
        jobs[str(attempt.number)] = [attempt.intended_at, _open(attempt.ended_at or end), attempt.job_id]
        work += [
            (f"{name} {phase}", [phase, start, _open(stop)])
            for phase, start, stop, name in stretches(facts, end)
            if stop > start
        ]
    return {
        "begin": history.created_at or None,
        "end": history.state_at if history.state.final else None,
        "jobs": jobs,
        "work": dict(work[-_STRETCHES:]),
        "verdicts": {
            _name(attempt, item): [item.failed_at, item.failure.cause]
            for attempt, item in _failed(history)[-_STRETCHES:]
            if item.failure
        },
        "saved": [round(at, 1) for at, _ in [*of_kind(events, ev.CheckpointSeen)][-_STRETCHES:]],
    }


def _open(at: float) -> float | None:
    """None for what still goes on."""
    return None if math.isinf(at) else at


def _incidents(history: History, lost: LostTime) -> dict[str, Any]:
    costs = {(cost.fault.failed_attempt, cost.fault.failed_generation): cost for cost in lost.faults}
    found = {}
    for attempt, item in _failed(history)[-_INCIDENTS:]:
        failure = item.failure
        if failure is None:
            continue
        cost = costs.get((attempt.number, item.number))
        suspects, phase = item.accused
        found[_name(attempt, item)] = {
            "at": item.failed_at,
            "verdict": failure.verdict,
            "cause": failure.cause,
            "step": failure.step if failure.step >= 0 else None,
            "reason": [clean(failure.reason), clean(sentence(failure, "zh"))],
            "suspects": list(suspects[:_LINES]),
            "nodes": list(failure.nodes[:_LINES]),
            "phase": phase or None,
            "detect_s": round(failure.detected_s, 2),
            "restart_s": round(cost.restart_s, 2) if cost else None,
            "repeated": cost.fault.repeated_steps if cost else None,
            "digest": [item.evidence.digest.get(lang, "") for lang in ("en", "zh")]
            if item.evidence
            else None,
            "evidence": item.evidence.path if item.evidence else None,
            "lines": [clean(line) for line in failure.lines[-_LINES:]],
        }
    return found


def _notices(history: History) -> dict[str, Any]:
    failures = failures_of(history)
    return {
        cause: {
            "at": notice.at,
            "over_at": notice.over_at,
            "verdict": notice.seen.verdict,
            "step": notice.seen.step,
            "reason": [clean(notice.seen.reason), clean(sentence(notice.seen, "zh"))],
            "over": pair(notice.over.reason, failures) if notice.over else None,
        }
        for cause, notice in history.notices.items()
    }


def _changed(events: Sequence[ev.Event]) -> dict[str, Any]:
    """What is different: between two attempts, and what was set while one ran. [attempt, time, what, by whom]."""
    found: list[list[Any]] = []
    waiting: list[list[Any]] = []  # for the next attempt
    attempt, excluded = 0, frozenset[str]()
    for event in events:
        match event.body:
            case ev.SettingsChanged() as body:
                waiting += [[event.time, what, body.by] for what in body.changes]
            case ev.BoundsSet() as body if body.reason:
                waiting.append([event.time, body.reason, ""])
            case ev.AttemptIntended() as body:
                attempt = body.attempt
                words = [*(f"+{node}" for node in sorted(set(body.exclude) - excluded))]
                words += [f"-{node}" for node in sorted(excluded - set(body.exclude))]
                if words:
                    waiting.append([event.time, f"job.exclude: {' '.join(words)}", ""])
                excluded = frozenset(body.exclude)
                found += [[attempt, *item] for item in waiting]
                waiting = []
            case ev.HotSet() as body:
                found += [
                    [attempt, event.time, f"{key}: {value}", body.by] for key, value in body.values.items()
                ]
            case _:
                pass
    found += [[attempt + 1, *item] for item in waiting]
    return {str(number): item for number, item in [*enumerate(found)][-_CHANGES:]}


def _story(events: Sequence[ev.Event]) -> dict[str, str]:
    """English sentence → the Chinese one; both begin with their time."""
    newest = events[-4 * _SENTENCES :]
    told = [*zip(story(newest, "en"), story(newest, "zh"), strict=True)][-_SENTENCES:]
    return {clean(english): clean(zh) for english, zh in told}


def _failed(history: History) -> list[tuple[AttemptHistory, GenerationHistory]]:
    return [
        (attempt, item)
        for attempt in history.attempts
        for item in attempt.generations
        if item.failure is not None and item.failed_at is not None
    ]


def _name(attempt: AttemptHistory, generation: GenerationHistory) -> str:
    return f"{attempt.number}.{generation.number}"
