"""Hand an attempt in, exactly once as far as anyone can know; `slurm.find` finds it again when in doubt."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.config import RunConfig, dump
from contract.files import FileLock
from contract.layout import RunDir
from slurm.job import submission_lock, write_job
from slurm.request import attempt_tag

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
    "reservation is invalid",
    "time limit is invalid",
    "invalid trackable resource",
    "memory specification can not be satisfied",
    "invalid license",
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


def submit_attempt(
    run: RunDir,
    config: RunConfig,
    attempt: int,
    exclude: Sequence[str] = (),
    timeout_s: float | None = None,
) -> Submitted | SubmitFailed:
    """Hand in this attempt. The caller has journalled the intent and holds the run's lock.

    Call `slurm.find.find_attempt` first when an earlier call for the same attempt may have got through.
    """
    place = run.attempt(attempt)
    tag = attempt_tag(run.run_id, attempt)
    executor = config.job.executor
    timeout_s = config.supervisor.submit_timeout_s if timeout_s is None else timeout_s
    lock = FileLock(submission_lock(run, attempt))
    try:
        place.submission.mkdir(parents=True, exist_ok=True)
        if not lock.acquire(f"submission by pid {os.getpid()}\n"):
            return SubmitFailed(
                reason="an earlier submission of this attempt is still at work", doubtful=True
            )
        write_job(run, attempt, tag=tag, executor=executor, job_id="")
        answer = _run_submitter(run, attempt, exclude, lock, patience=(timeout_s, executor == "slurm"))
    except subprocess.TimeoutExpired:
        return SubmitFailed(reason=f"the submission gave no answer within {timeout_s:.0f} s", doubtful=True)
    except OSError as error:
        return SubmitFailed(reason=f"the submission could not be started: {error}")
    finally:
        lock.release()
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
    # sbatch and submitit say it in several lines; a reason is a part of a sentence.
    return SubmitFailed(reason=" ".join(error.split()), permanent=permanent, doubtful=doubtful)


def render_dry_run(run: RunDir, config: RunConfig) -> str:
    """The sbatch script of the first attempt."""
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


def local_dry_run(run: RunDir, config: RunConfig) -> list[str]:
    """In lines, what the first attempt of a run with `executor = "local"` starts: processes of this machine, no script."""
    job = config.job
    agents = job.nodes + job.spare_nodes
    return [
        'executor = "local": no sbatch script. On this machine, in the background, through submitit:',
        f"  {agents} node agent{'s' if agents > 1 else ''}: {sys.executable} -P -m slurm.agent {run.path} 1",
        f"  {job.world_size} worker{'s' if job.world_size > 1 else ''}: "
        + shlex.join(job.command or (sys.executable, "-P", "-m", "trainer")),
        f"  at most {job.time_limit_min} min",
    ]


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


def _run_submitter(
    run: RunDir, attempt: int, exclude: Sequence[str], lock: FileLock, *, patience: tuple[float, bool]
) -> dict[str, Any]:
    """Start the submitter in a session of its own; its output goes to files, because a local job inherits them.

    `patience`: how long it may take (s), and whether what it has started dies with it then.
    """
    timeout_s, whole = patience
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
            pass_fds=(lock.fileno(),),
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # An sbatch that is left alone could hand the job in minutes later. A local job must live on.
            if whole:
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
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
