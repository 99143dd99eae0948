"""Whether a job of an attempt exists, when its submission is in doubt: no answer came, or nobody lived to hear it."""

import math
import time
from dataclasses import dataclass
from enum import StrEnum

from contract.control import read_claim
from contract.files import lock_is_held
from contract.layout import RunDir
from slurm import processes, squeue
from slurm.job import JobRecord, read_job, submission_lock
from slurm.words import Row

_HOUR_S = 3600.0
_MARGIN_H = 2  # tries of one submission that follow each other, and clocks that differ
_LONGEST_H = 24 * 30  # slurmdbd may refuse to look back further


class Finding(StrEnum):
    """Whether a job of an attempt exists."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Found:
    """Answer of `find_attempt`; `job_id` may be "" for a local attempt whose controller is gone."""

    finding: Finding
    job_id: str = ""
    reason: str = ""


def find_attempt(run: RunDir, attempt: int, ask: squeue.Ask = squeue.ask) -> Found:
    """Look for a job of this attempt, whoever submitted it. Says ABSENT only when that is certain."""
    try:
        record = read_job(run, attempt)
        if record is None:
            return Found(finding=Finding.ABSENT, reason="it was never handed in")
        return _find_recorded(run, attempt, record, ask)
    except (OSError, ValueError) as error:
        return Found(finding=Finding.UNKNOWN, reason=str(error))


def _find_recorded(run: RunDir, attempt: int, record: JobRecord, ask: squeue.Ask) -> Found:
    if lock_is_held(submission_lock(run, attempt)):  # its supervisor was killed, and the submitter lives on
        return Found(finding=Finding.UNKNOWN, reason="its submission is still at work")
    claim = read_claim(run, attempt)
    if claim is not None:  # it ran, or runs: even if nothing of it is left, its number is used up
        return Found(finding=Finding.FOUND, job_id=record.job_id or claim.job_id)
    if record.executor == "local":
        return _find_here(run, attempt, record)
    if record.job_id:
        return Found(finding=Finding.FOUND, job_id=record.job_id)
    return _find_in_slurm(run, attempt, record.tag, ask)


def _find_here(run: RunDir, attempt: int, record: JobRecord) -> Found:
    seen = processes.find(run, attempt) if record.this_boot else []
    if seen:
        controller = [str(item.pid) for item in seen if item.role is processes.Role.CONTROLLER]
        return Found(finding=Finding.FOUND, job_id=controller[0] if controller else record.job_id)
    if record.this_boot or record.rebooted:
        return Found(finding=Finding.ABSENT, reason="no process of it is on this machine")
    return Found(
        finding=Finding.UNKNOWN,
        reason=f"it was started on {record.host}, which cannot be looked at from here",
    )


def _find_in_slurm(run: RunDir, attempt: int, tag: str, ask: squeue.Ask) -> Found:
    rows = squeue.list_jobs(ask)
    if rows is None:
        return Found(finding=Finding.UNKNOWN, reason="Slurm gave no answer")
    ours = sorted((row for row in rows if row.comment == tag), key=lambda row: not row.state.alive)
    ours = ours or _ended_since(run, attempt, tag, ask)
    if ours:
        return Found(finding=Finding.FOUND, job_id=ours[0].job_id)
    return Found(finding=Finding.ABSENT, reason=f"no job with the comment {tag}")


def _ended_since(run: RunDir, attempt: int, tag: str, ask: squeue.Ask) -> list[Row]:
    """Jobs of the attempt that got in, ended (by a person's cancel, perhaps) and are forgotten by the controller.

    Accounting alone knows them. Where it is off or does not answer, what the controller says must be enough. Whether it
    keeps comments is a setting of the cluster; the command line names the attempt's own directory.
    """
    place = f"{run.run_id}/{run.attempt(attempt).path.relative_to(run.path)}/"
    age_h = math.ceil((time.time() - run.attempt(attempt).job.stat().st_mtime) / _HOUR_S)
    hours = min(_LONGEST_H, max(0, age_h) + _MARGIN_H)
    return [
        row
        for row, command in squeue.ended_jobs(run.run_id, hours, ask)
        if row.comment == tag or place in command
    ]
