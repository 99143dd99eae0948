"""Hand an attempt in, exactly once as far as anyone can know, and find it again when in doubt."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from contract.config import RunConfig, dump
from contract.control import read_claim
from contract.layout import RunDir
from slurm import processes, squeue
from slurm.job import JobRecord, read_job, write_job
from slurm.request import attempt_tag

SUBMIT_TIMEOUT_S = 90.0
# What sbatch says when asking again cannot help. Compared in lower case.
_PERMANENT = (
    "invalid partition",
    "invalid account",
    "invalid qos",
    "invalid node name",
    "invalid job array",
    "requested node configuration is not available",
    "node count specification invalid",
    "more processors requested than permitted",
    "access/permission denied",
    "user's group not permitted",
    "unrecognized option",
    "invalid --",
    "invalid feature",
    "invalid generic resource",
    "invalid wckey",
    'could not detect "srun"',
)
# What it says when the job may have got in all the same.
_DOUBTFUL = (
    "timed out",
    "timeout",
    "could not make sense of sbatch output",
    "communication",
    "zero bytes were transmitted",
)


@dataclass(frozen=True, kw_only=True)
class Submitted:
    job_id: str


@dataclass(frozen=True, kw_only=True)
class SubmitFailed:
    """`permanent`: trying again cannot help. `doubtful`: the job may have got in; `find_attempt` tells."""

    reason: str
    permanent: bool = False
    doubtful: bool = False


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


def submit_attempt(
    run: RunDir,
    config: RunConfig,
    attempt: int,
    exclude: Sequence[str] = (),
    timeout_s: float = SUBMIT_TIMEOUT_S,
) -> Submitted | SubmitFailed:
    """Hand in this attempt. The caller has journalled the intent and holds the run's lock.

    Call `find_attempt` first when an earlier call for the same attempt may have got through.
    """
    place = run.attempt(attempt)
    tag = attempt_tag(run.run_id, attempt)
    executor = config.job.executor
    try:
        place.submission.mkdir(parents=True, exist_ok=True)
        write_job(run, attempt, tag=tag, executor=executor, job_id="")
        answer = _run_submitter(run, attempt, exclude, timeout_s)
    except subprocess.TimeoutExpired:
        return SubmitFailed(reason=f"the submission gave no answer within {timeout_s:.0f} s", doubtful=True)
    except OSError as error:
        return SubmitFailed(reason=f"the submission could not be started: {error}")
    if "job_id" not in answer:
        return classify(str(answer.get("error", "the submitter gave no reason")))
    job_id = str(answer["job_id"])
    write_job(run, attempt, tag=tag, executor=executor, job_id=job_id)
    return Submitted(job_id=job_id)


def classify(error: str) -> SubmitFailed:
    """What an error of sbatch or submitit means for another try."""
    text = error.lower()
    permanent = any(sign in text for sign in _PERMANENT)
    doubtful = not permanent and any(sign in text for sign in _DOUBTFUL)
    return SubmitFailed(reason=error, permanent=permanent, doubtful=doubtful)


def find_attempt(run: RunDir, attempt: int) -> Found:
    """Look for a job of this attempt, whoever submitted it. Says ABSENT only when that is certain."""
    try:
        record = read_job(run, attempt)
    except (OSError, ValueError) as error:
        return Found(finding=Finding.UNKNOWN, reason=str(error))
    if record is None:
        return Found(finding=Finding.ABSENT, reason="it was never handed in")
    if record.executor == "slurm":
        return _find_in_slurm(record.tag)
    claim = read_claim(run, attempt)
    if claim is not None:  # it ran, or runs: even if nothing of it is left, its number is used up
        return Found(finding=Finding.FOUND, job_id=record.job_id or claim.job_id)
    return _find_in_slurm(record.tag) if record.executor == "slurm" else _find_here(run, attempt, record)


def render_dry_run(run: RunDir, config: RunConfig) -> str:
    """The sbatch script of the first attempt (what it would be with `executor = "slurm"`, for a local run)."""
    command = [sys.executable, "-P", "-m", "slurm.submitter", "render", str(run.path), "1"]
    done = subprocess.run(
        command,
        input=dump(config),
        env=submitter_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return str(json.loads(done.stdout)["script"])


def submitter_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the submitter, and through it a local job, inherits. Nothing of a job that we may be inside of."""
    inside = ("SLURM_", "SBATCH_", "SUBMITIT_", "SQUEUE_", "CIUIC_")
    foreign = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "LISTEN_FDS", "LISTEN_PID"}
    kept = {
        name: value
        for name, value in environment.items()
        if (not name.startswith(inside) or name == "SLURM_CONF") and name not in foreign
    }
    # `python -m submitit…`, started by submitit itself, must not look into the working directory either.
    return kept | {"PYTHONSAFEPATH": "1", "SUBMITIT_PREEMPT_SIGNAL": "USR1"}


def _run_submitter(run: RunDir, attempt: int, exclude: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Start the submitter in a session of its own; its output goes to files, because a local job inherits them."""
    folder = run.attempt(attempt).submission
    command = [sys.executable, "-P", "-m", "slurm.submitter", "submit", str(run.path), str(attempt), *exclude]
    out, err = folder / "submitter.out", folder / "submitter.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=run.path,
            env=submitter_environment(),
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # the submitter alone: what it has started must not die by our impatience
            process.wait()
            raise
    return _answer(out, err, process.returncode)


def _answer(out: Path, err: Path, code: int) -> dict[str, Any]:
    with contextlib.suppress(ValueError, IndexError):
        value = json.loads(out.read_text(errors="replace").strip().splitlines()[-1])
        if isinstance(value, dict):
            return value
    last = err.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    return {"error": f"the submitter ended with {code}: {last[0]}"}


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


def _find_in_slurm(tag: str) -> Found:
    rows = squeue.list_jobs()
    if rows is None:
        return Found(finding=Finding.UNKNOWN, reason="Slurm gave no answer")
    ids = [row.job_id for row in rows if row.comment == tag]
    if ids:
        return Found(finding=Finding.FOUND, job_id=ids[0])
    return Found(finding=Finding.ABSENT, reason=f"no job with the comment {tag}")
