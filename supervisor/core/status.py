"""The facts of one run for programs: `ciuic status RUN --json`. The daemon decides on the same values."""

from typing import Any

from contract.copies.report import Report
from contract.copies.target import Kind
from contract.history import AttemptHistory, GenerationHistory, History
from contract.states import RunState
from supervisor.core.lost_time import ettr
from supervisor.core.observation import Observation
from supervisor.core.verdict import Verdict

VERSION = 1


def status(history: History, observation: Observation, verdict: Verdict, now: float) -> dict[str, Any]:
    """Every key is always there; what is not known is null."""
    newest = observation.checkpoint
    return {
        "version": VERSION,
        "run": history.run,
        "state": history.state.value,
        "reason": _reason(history, verdict),
        "step": step_of(history, observation),
        "target_step": history.target_steps or None,
        "attempts": [_attempt(attempt, history, observation, verdict) for attempt in history.attempts],
        "ranks": [
            {
                "rank": worker.rank,
                "node": seen.node,
                "pid": worker.pid,
                "phase": worker.phase.word,
                "step": worker.step,
            }
            for seen, worker in observation.workers
        ],
        "newest_checkpoint": (
            {"step": newest.step, "path": newest.path, "valid": True} if newest is not None else None
        ),
        "copies": [_copy(kind, report, now) for kind, report in observation.copies.items()],
        "hot": dict(history.hot),
        "alerts": {
            "sent": history.alerts_sent,
            "pending": len(history.outbox),
            "failed": history.alerts_failed,
            "acknowledged": _acknowledged(history),
            "silenced": _silenced(history, now),
        },
        "ettr": ettr(history, observation, now),
        "journal_problems": list(history.damaged),
        "queue_problem": (
            {"since": history.queue_silent[0], "reason": history.queue_silent[1]}
            if history.queue_silent is not None and not history.state.final
            else None
        ),
        "save_problem": history.save_failure.reason
        if history.saves_failing and history.save_failure
        else None,
    }


def _copy(kind: Kind, report: Report, now: float) -> dict[str, Any]:
    """`behind_s`: for how long something newer has been waiting, 0.0 when nothing is."""
    return {
        "kind": kind.value,
        "where": report.where,
        "step": report.newest[0] if report.newest else None,
        "behind_s": round(max(0.0, now - report.behind_since), 1) if report.behind_since else 0.0,
        "trouble": report.trouble.value if report.trouble else None,
        "reason": report.text or None,
        "sending": {"checkpoint": report.sending, "bytes": report.sent, "of": report.total}
        if report.sending
        else None,
    }


def _acknowledged(history: History) -> dict[str, Any] | None:
    """Who knows of the open incident, and since when."""
    if history.acknowledged is None:
        return None
    return {
        "by": history.acknowledged.by,
        "at": history.acknowledged_at,
        "keys": list(history.acknowledged.keys),
    }


def _silenced(history: History, now: float) -> dict[str, Any] | None:
    """Who wants to hear nothing, and until when."""
    if history.silenced_until <= now:
        return None
    return {"by": history.silenced_by, "until": history.silenced_until}


def _reason(history: History, verdict: Verdict) -> str:
    """Why it is in this state: of an end or a recovery what led there, else what the look says now."""
    led_here = history.state.final or history.state is RunState.RECOVERING
    return (history.reason if led_here else "") or verdict.reason


def step_of(history: History, observation: Observation) -> int | None:
    """Steps that every worker has completed; between two generations, where the run will go on."""
    if observation.workers and (observation.resume_step is not None or observation.step > 0):
        return max(observation.step, observation.resume_step or 0)
    if observation.checkpoint is not None:
        return observation.checkpoint.step
    return 0 if history.attempts else None


def _attempt(
    attempt: AttemptHistory, history: History, observation: Observation, verdict: Verdict
) -> dict[str, Any]:
    current = attempt.number == observation.attempt
    nodes = next((item.members for item in reversed(attempt.generations) if item.members), ())
    if current and observation.members:
        nodes = observation.members
    known = frozenset(nodes)
    beating = [seen.node for seen in observation.nodes if seen.beat] if current else []
    return {
        "number": attempt.number,
        "job_id": attempt.job_id or None,
        "nodes": list(nodes),
        "spares": [node for node in beating if node not in known] if known else [],
        "generations": [
            _generation(attempt, generation, history, observation, verdict)
            for generation in attempt.generations
        ],
    }


def _generation(
    attempt: AttemptHistory,
    generation: GenerationHistory,
    history: History,
    observation: Observation,
    verdict: Verdict,
) -> dict[str, Any]:
    """A failed one says why; the current one says what the look says; one that was ended otherwise says nothing."""
    failure = generation.failure
    here = (attempt.number, generation.number)
    facts: dict[str, Any] = {
        "number": generation.number,
        "verdict": None,
        "reason": generation.reason or None,
        "suspects": [],
        "phase": None,
        "first_step": generation.resume_step,
        "restored_from": generation.restored_from or None,
        "last_step": None,
    }
    if failure is not None:
        last = failure.step if failure.step >= 0 else None
        suspects, phase = generation.accused
        return facts | {
            "verdict": failure.verdict,
            "reason": failure.reason,
            "suspects": list(suspects),
            "phase": phase or None,
            "last_step": last,
        }
    if here == history.at == (observation.attempt, observation.generation):
        return facts | {
            "verdict": verdict.kind.value,
            "reason": verdict.reason,
            "suspects": list(verdict.suspects),
            "phase": verdict.limits.get("phase"),
            "last_step": observation.step if observation.workers else None,
        }
    return facts
