"""What a run is at, for its page and for its row among all runs. Pure; both languages at once."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contract.history import History
from contract.language import LANGUAGES
from contract.states import JobState, RunState
from supervisor.core.actions import SetState, Tell, Wait
from supervisor.core.curve import CurveLook
from supervisor.core.failure_words import sentence
from supervisor.core.lost_time import lost_time
from supervisor.core.observation import JobLook, Observation
from supervisor.core.reasons import chinese, failures_of
from supervisor.core.status import step_of
from supervisor.page.past import clean, pair
from supervisor.page.words import Pair, said
from supervisor.seen import RunSeen
from supervisor.telling import coming, for_people, reason_of
from supervisor.words import TEXTS, text

NOTHING = Observation(attempt=0, generation=0, job=JobLook(state=JobState.UNKNOWN))
_LINES = 3
# What a reader should do, in the order in which it is shown. A state alone does not say it: a run that trains may be slow.
GROUPS = ("needs", "bad", "acting", "watch", "ok", "waiting", "done")
_GROUP_OF: Mapping[RunState, str] = {
    RunState.FAILED: "needs",
    RunState.RECOVERING: "acting",
    RunState.UNKNOWN: "watch",
    RunState.RUNNING: "ok",
    RunState.STARTING: "waiting",
    RunState.PENDING: "waiting",
    RunState.PAUSED: "waiting",
    RunState.COMPLETED: "done",
    RunState.CANCELLED: "done",
}


def group_of(seen: RunSeen) -> str:
    state = seen.history.state
    shown = seen.shown
    if shown is None or state.final or state is RunState.RECOVERING:
        return _GROUP_OF[state]
    if shown.verdict.failed:
        return "bad"
    if shown.verdict.told or seen.history.saves_failing or seen.history.queue_silent:
        return "watch"
    return _GROUP_OF[state]


def row(seen: RunSeen) -> dict[str, Any]:
    """The run among all others."""
    history, shown = seen.history, seen.shown
    observation = shown.observation if shown else NOTHING
    curve = observation.curve
    return {
        "state": history.state.value,
        "group": group_of(seen),
        "since": history.state_at or None,
        "verdict": shown.verdict.kind.value if shown and not history.state.final else None,
        "reason": _reason(seen),
        "step": _step(history, observation),
        "target": history.target_steps or None,
        "speed": _number(curve.tokens_per_s) if curve and not history.state.final else None,
        "moved_at": _moved_at(seen),
        "saved": history.newest_checkpoint.step if history.newest_checkpoint else None,
        "faults": len(history.faults) + (history.open_failure is not None),
        "nodes": len(observation.members) or None,
        "ranks": len(observation.workers) or None,
        "seen_at": None if seen.seen_at is None else round(seen.seen_at, 1),
    }


def head(seen: RunSeen, digest: Sequence[str] | None) -> dict[str, Any]:
    """The bar at the top of a run's page. `digest`: what the evidence of its failure says, (English, Chinese)."""
    history, shown = seen.history, seen.shown
    observation = shown.observation if shown else NOTHING
    effective = lost_time(history, observation, seen.seen_at or history.state_at).ratio
    return row(seen) | {
        "run": seen.run,
        "evidence": _evidence(seen, digest),
        "next": _next(seen),
        "next_at": _next_at(seen),
        "notes": _notes(seen),
        "effective": None if effective is None else round(effective, 4),
        "pace": _pace(observation.curve),
        "loss": _number(observation.curve.numbers.loss)
        if observation.curve and observation.curve.numbers
        else None,
        "job": [history.newest.number, history.newest.job_id] if history.newest else None,
        "start": history.at[1] or None,
        "alerts": [history.alerts_sent, len(history.outbox), history.alerts_failed],
        "target_tokens": history.target_tokens or None,
        "node_names": list(observation.members[:8]),
    }


def _reason(seen: RunSeen) -> Pair:
    """Why it is in this state: of an end or a recovery what led there, else what the look says now."""
    history, shown = seen.history, seen.shown
    led_here = history.state.final or history.state is RunState.RECOVERING
    if shown is None or (led_here and history.reason):
        return [clean(history.reason), clean(chinese(history.reason, failures_of(history)))]
    said = (reason_of(history, shown.observation, shown.verdict, lang) for lang in LANGUAGES)
    return [clean(line) for line in said]


def _evidence(seen: RunSeen, digest: Sequence[str] | None) -> list[Pair]:
    """Of a failure that is open, or has ended the run: what happened, where the ranks stand, the last words."""
    history, shown = seen.history, seen.shown
    failure = history.open_failure.verdict if history.open_failure else None
    if failure is None and history.state is RunState.FAILED and history.failures:
        failure = history.failures[-1].verdict
    found: list[Pair] = []
    if failure is not None:
        found.append([clean(sentence(failure, "en")), clean(sentence(failure, "zh"))])
        if digest:
            rows = zip(*(item.splitlines() for item in digest), strict=False)
            found += [[clean(english), clean(zh)] for english, zh in rows]
        found += [[clean(line)] * 2 for line in failure.lines[-_LINES:]]
    elif shown is not None and shown.verdict.trains and shown.observation.workers:
        live = [worker.idle_s for _, worker in shown.observation.workers if worker.exit_code is None]
        if live:
            found.append(said("page-live", ranks=len(live), idle=f"{max(live):.0f}"))
    if shown is not None and not history.state.final:
        found += [[clean(line.text)] * 2 for line in shown.observation.logs[:_LINES] if not line.remark]
    return found


def _next(seen: RunSeen) -> Pair:
    """What is being done, or what a person can do."""
    history, shown = seen.history, seen.shown
    observation = shown.observation if shown else NOTHING
    done = [
        action
        for action in (shown.actions if shown and not history.state.final else ())
        if not isinstance(action, Tell | SetState)
    ]
    if done:
        return [clean("; ".join(coming(done, lang, history))) for lang in LANGUAGES]
    key = for_people(history, observation)
    return [text(key, lang, ciuic="ciuic", run=seen.run) for lang in LANGUAGES]


def _next_at(seen: RunSeen) -> float | None:
    """When a wait that was decided ends."""
    if seen.shown is None or seen.history.state.final:
        return None
    waits = [action.until for action in seen.shown.actions if isinstance(action, Wait)]
    soonest = min(waits, default=math.inf)
    return None if math.isinf(soonest) else round(soonest, 1)


def _notes(seen: RunSeen) -> list[Pair]:
    """What else a person should know."""
    history, shown = seen.history, seen.shown
    found: list[Pair] = []
    if shown is not None and shown.config.supervisor.observe_only:
        found.append(_both("observed"))
    if history.saves_failing and history.save_failure:
        found.append(_both("unsaved", why=history.save_failure.reason))
    if history.queue_silent is not None and not history.state.final:
        found.append(_both("page-queue", why=history.queue_silent[1]))
    if history.acknowledged is not None:
        found.append(said("page-acknowledged", by=history.acknowledged.by))
    found += [_both("damaged", what=problem) for problem in (*history.damaged, history.lost) if problem]
    return found


def _both(key: str, **reasons: str) -> Pair:
    """A text with reasons in it, each in the text's language."""
    pairs = {name: pair(reason, {}) for name, reason in reasons.items()}
    if key in TEXTS:
        made = [
            text(key, lang, **{name: value[at] for name, value in pairs.items()})
            for at, lang in enumerate(LANGUAGES)
        ]
    else:
        made = [said(key, **{name: value[at] for name, value in pairs.items()})[at] for at in range(2)]
    return [clean(line) for line in made]


def _step(history: History, observation: Observation) -> int | None:
    step = step_of(history, observation)
    saved = history.newest_checkpoint.step if history.newest_checkpoint else None
    known = [item for item in (step, saved) if item is not None]
    return step if history.state is RunState.RUNNING else max(known, default=None)


def _moved_at(seen: RunSeen) -> float | None:
    """When the worker that moved last did so."""
    if seen.shown is None or not seen.shown.observation.workers:
        return None
    idle = min(worker.idle_s for _, worker in seen.shown.observation.workers)
    return float(round(seen.shown.at - idle))


def _pace(curve: CurveLook | None) -> list[float] | None:
    """[usual, lately], seconds a step."""
    if curve is None or curve.pace is None:
        return None
    return [round(curve.pace.usual_s, 4), round(curve.pace.recent_s, 4)]


def _number(value: float) -> float | None:
    """Six digits are what a person reads."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
