"""What the report says, as values: `ciuic report RUN --json`. The page is drawn from these alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from contract import events as ev
from contract.config import RunConfig
from contract.history import AttemptHistory, GenerationHistory, History
from supervisor.core.lost_time import FaultCost, LostTime
from supervisor.report.curves import Curves, Point

VERSION = 1


def facts(
    status: dict[str, Any],
    history: History,
    config: RunConfig,
    events: Sequence[ev.Event],
    lost: LostTime,
    curves: Curves,
    now: float,
) -> dict[str, Any]:
    """Every key is always there; what is not known is null. Times are UTC seconds, lengths are seconds."""
    return {
        "version": VERSION,
        "run": history.run or status["run"],
        "name": config.run.name,
        "labels": dict(config.metadata.labels),
        "made_at": round(now, 3),
        "made_by": history.version,
        "created_at": history.created_at or None,
        "state": status["state"],
        "state_at": history.state_at or None,
        "reason": status["reason"],
        "step": _step(status, history, curves),
        "target_step": status["target_step"],
        "effective_time": _effective(lost),
        "lost_time": _by_cause(lost.faults),
        "attempts": [attempt_facts(attempt) for attempt in history.attempts],
        "faults": [_fault(cost, history) for cost in lost.faults],
        "notices": _notices(events),
        "checkpoints": [
            {"at": at, "step": body.step, "attempt": body.attempt, "generation": body.generation}
            for at, body in of_kind(events, ev.CheckpointSeen)
        ],
        "profiles": [
            {
                "at": at,
                "first_step": body.first_step,
                "ranks": list(body.ranks),
                "order": body.order,
                "path": body.path,
                "digest": dict(body.digest),
            }
            for at, body in of_kind(events, ev.ProfileKept)
        ],
        "alerts": status["alerts"],
        "journal_problems": status["journal_problems"],
        "metrics": _metrics(curves),
    }


def _step(status: dict[str, Any], history: History, curves: Curves) -> int | None:
    """The last step that counts; the workers' beats and the checkpoints may be gone by now."""
    saved = history.newest_checkpoint
    known = [status["step"], saved.step if saved else None, curves.reached or None]
    return max((step for step in known if step is not None), default=None)


def _effective(lost: LostTime) -> dict[str, Any]:
    known = lost.lost_s is not None
    return {
        "ratio": None if lost.ratio is None else round(lost.ratio, 4),
        "elapsed_s": _rounded(lost.elapsed_s),
        "lost_s": _rounded(lost.lost_s),
        "detection_s": _rounded(sum(cost.detect_s for cost in lost.faults)),
        "restart_s": _rounded(sum(cost.restart_s for cost in lost.faults)),
        "repeated_s": _rounded(sum(cost.repeated_s or 0.0 for cost in lost.faults)) if known else None,
        "queue_s": _rounded(lost.queue_s),
    }


def _by_cause(costs: Iterable[FaultCost]) -> list[dict[str, Any]]:
    """One row a cause, the dearest first."""
    groups: dict[str, list[FaultCost]] = defaultdict(list)
    for cost in costs:
        groups[cost.cause].append(cost)
    rows = []
    for cause, group in groups.items():
        repeated = [cost.repeated_s for cost in group]
        known = [seconds for seconds in repeated if seconds is not None]
        rows.append(
            {
                "cause": cause,
                "faults": len(group),
                "detection_s": _rounded(sum(cost.detect_s for cost in group)),
                "restart_s": _rounded(sum(cost.restart_s for cost in group)),
                "repeated_steps": sum(cost.fault.repeated_steps for cost in group),
                "repeated_s": _rounded(sum(known)) if len(known) == len(group) else None,
                "queue_s": _rounded(sum(cost.queue_s for cost in group)),
            }
        )
    return sorted(rows, key=lambda row: -(row["detection_s"] + row["restart_s"] + (row["repeated_s"] or 0)))


def attempt_facts(attempt: AttemptHistory) -> dict[str, Any]:
    """One job and its starts of the workers."""
    return {
        "number": attempt.number,
        "job_id": attempt.job_id or None,
        "reason": attempt.reason,
        "excluded": list(attempt.exclude),
        "intended_at": attempt.intended_at,
        "submitted_at": attempt.submitted_at,
        "ended_at": attempt.ended_at,
        "job_state": attempt.ended.job_state if attempt.ended else None,
        "end_reason": attempt.ended.reason if attempt.ended else None,
        "generations": [_generation(item) for item in attempt.generations],
    }


def _generation(item: GenerationHistory) -> dict[str, Any]:
    failure = item.failure
    suspects, phase = item.accused
    return {
        "number": item.number,
        "nodes": list(item.members),
        "reason": item.reason or None,
        "intended_at": item.intended_at,
        "went_at": item.went_at,
        "resumed_at": item.resumed_at,
        "first_step": item.resume_step,
        "restored_from": item.restored_from or None,
        "recovered_at_step": item.recovered.step if item.recovered else None,
        "failed_at": item.failed_at,
        "verdict": failure.verdict if failure else None,
        "cause": failure.cause if failure else None,
        "failure": failure.reason if failure else None,
        "failed_step": failure.step if failure and failure.step >= 0 else None,
        "suspects": list(suspects),
        "phase": phase or None,
        "suspect_nodes": list(failure.nodes) if failure else [],
        "detected_s": failure.detected_s if failure else None,
        "lines": list(failure.lines) if failure else [],
        "evidence": item.evidence.path if item.evidence else None,
        "digest": dict(item.evidence.digest) if item.evidence else {},
    }


def _fault(cost: FaultCost, history: History) -> dict[str, Any]:
    fault = cost.fault
    attempt = next((item for item in history.attempts if item.number == fault.failed_attempt), None)
    failed = next(
        (item for item in (attempt.generations if attempt else ()) if item.number == fault.failed_generation),
        None,
    )
    return {
        "at": failed.failed_at if failed else None,
        "failed": [fault.failed_attempt, fault.failed_generation],
        "recovered": [fault.attempt, fault.generation],
        "step": fault.step,
        "cause": cost.cause,
        "detection_s": _rounded(cost.detect_s),
        "restart_s": _rounded(cost.restart_s),
        "queue_s": _rounded(cost.queue_s),
        "repeated_steps": fault.repeated_steps,
        "repeated_s": _rounded(cost.repeated_s),
    }


def _notices(events: Sequence[ev.Event]) -> list[dict[str, Any]]:
    return [
        {"at": at, "verdict": body.verdict, "cause": body.cause, "step": body.step, "reason": body.reason}
        for at, body in of_kind(events, ev.Noticed)
    ]


def of_kind(events: Iterable[ev.Event], kind: type[ev.Body]) -> Iterable[tuple[float, Any]]:
    """Time and body of the events of a kind; what an overtaken supervisor wrote does not count."""
    epoch = 0
    for event in events:
        if event.epoch < epoch:
            continue
        epoch = event.epoch
        if type(event.body) is kind:
            yield event.time, event.body


def _metrics(curves: Curves) -> dict[str, Any]:
    return {
        "steps_in_bucket": curves.width,
        "rows": curves.rows,
        "rows_done_again": curves.undone_rows,
        "dropped_steps": curves.dropped,
        "not_finite": [
            {"step": key * curves.width, "count": count} for key, count in sorted(curves.broken.items())
        ],
        "batch_changes": [{"step": step, "reason": reason} for step, reason in curves.changes],
        "series": {name: _series(points, curves.width) for name, points in curves.points.items() if points},
        "done_again": _series(curves.undone, curves.width),
    }


def _series(points: dict[int, Point], width: int) -> dict[str, list[Any]]:
    """Columns: the bucket's first step, and the least, the greatest and the mean value in it."""
    keys = sorted(points)
    return {
        "step": [key * width for key in keys],
        "low": [_short(points[key].low) for key in keys],
        "high": [_short(points[key].high) for key in keys],
        "mean": [_short(points[key].mean) for key in keys],
    }


def _short(value: float) -> float:
    """Six digits are what a chart can show."""
    return float(f"{value:.6g}")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
