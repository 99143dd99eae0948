"""Create a run and hand in its first attempt. Until the attempt is intended, a failure leaves nothing behind."""

import os
import secrets
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contract import files
from contract.config import ConfigError, Problem, RunConfig, digest, dump
from contract.control import Control, write_control
from contract.events import AttemptIntended, AttemptSubmitted, RunCreated, SubmitFailed
from contract.files import FileLock
from contract.journal import Journal
from contract.layout import RunDir
from contract.states import ControlPhase
from slurm import submit
from slurm.container import inside
from slurm.find import Finding, find_attempt
from slurm.patience import Patience
from slurm.request import attempt_tag

FIND_S = 5.0  # after a submission in doubt; a supervisor asks again
# Slurm replaces `%` in the paths of output files, and takes backslashes and line ends apart.
_NOT_IN_PATHS = frozenset('%\\"\n\r')


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the first attempt. `problem` "" when it is in the queue, or a supervisor sees to it.

    `doubtful`: with that problem it may be in the queue all the same.
    """

    run: RunDir
    job_id: str = ""
    problem: str = ""
    left_to_supervisor: bool = False
    doubtful: bool = False


def create_run(config: RunConfig, root: Path) -> RunDir:
    """Make the directory of a new run: configuration, control.json and journal, complete or not at all.

    Raises:
        ConfigError: the configuration asks for what cannot be submitted from here.
        OSError: the directory cannot be written.
    """
    problems = submission_problems(config, root)
    if problems:
        raise ConfigError(config.run.name, problems)
    root.mkdir(parents=True, exist_ok=True)
    # What was asked for may be relative, or another place than --root: alerts name files by what stands here.
    config = config.model_copy(update={"run": config.run.model_copy(update={"root": str(root.absolute())})})
    run_id = new_run_id(config.run.name, datetime.now(UTC), secrets.token_hex(2))
    aside = RunDir(path=root / f".{run_id}")  # whoever looks through the root sees it only when it is whole
    try:
        aside.path.mkdir()
        _fill(aside, run_id, config)
        run = RunDir(path=root / run_id)
        aside.path.rename(run.path)
    except BaseException:
        shutil.rmtree(aside.path, ignore_errors=True)
        raise
    files.sync_directory(root)
    return run


def first_attempt(run: RunDir, config: RunConfig) -> Outcome:
    """Hand in attempt 1 under the run's lock: intent, submission, outcome."""
    lock = FileLock(run.lock)
    if not lock.acquire(f"submit pid {os.getpid()}\n"):
        return Outcome(run=run, left_to_supervisor=True)  # it was faster than we are
    try:
        journal = Journal(run.journal, clock=time.time, epoch=0)
        journal.replay()
        try:
            return _submit_first(run, config, journal)
        finally:
            journal.close()
    finally:
        lock.release()


def new_run_id(name: str, now: datetime, token: str) -> str:
    """`<name>-20250131t235959-1a2b`: sorts by time, fits a Slurm job name."""
    return f"{name}-{now:%Y%m%dt%H%M%S}-{token}"


def submission_problems(config: RunConfig, root: Path) -> list[Problem]:
    """What is wrong with a configuration only because it is to be submitted, here."""
    found = []
    odd = [path for path in inside(config, root) if any(sign in path for sign in ",: \t")]
    if config.job.image and odd:
        what = f"{odd[0]!r} is to be seen in the container, and no mount takes a comma, a colon or a blank in a path"
        found.append(Problem(where="job.image", what=what))
    bad = sorted(_NOT_IN_PATHS & set(str(root)))
    if bad:
        found.append(
            Problem(
                where="run.root", what=f"{str(root)!r} holds {bad[0]!r}, which Slurm does not take in paths"
            )
        )
    return found


def package_version() -> str:
    """The installed version, for the journal."""
    try:
        return version("ciuic")
    except PackageNotFoundError:
        return "unknown"


def _fill(place: RunDir, run_id: str, config: RunConfig) -> None:
    text = dump(config)
    files.replace_file(place.config, text.encode())
    for directory in (place.requests, place.attempts, place.checkpoints, place.metrics):
        directory.mkdir()
    place.lock.touch()
    write_control(place, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    journal = Journal(place.journal, clock=time.time, epoch=0)
    try:
        journal.append(
            RunCreated(
                run=run_id,
                config_digest=digest(text),
                version=package_version(),
                target_steps=config.run.steps,
                target_tokens=config.run.tokens,
            )
        )
    finally:
        journal.close()


def _submit_first(run: RunDir, config: RunConfig, journal: Journal) -> Outcome:
    journal.append(AttemptIntended(attempt=1, tag=attempt_tag(run.run_id, 1), reason="submitted"))
    answer = submit.submit_attempt(run, config, 1)
    if isinstance(answer, submit.SubmitFailed) and answer.doubtful:
        found = find_attempt(run, 1, Patience(FIND_S))
        if found.finding is Finding.FOUND:
            journal.append(AttemptSubmitted(attempt=1, job_id=found.job_id, adopted=True))
            return Outcome(run=run, job_id=found.job_id)
    if isinstance(answer, submit.SubmitFailed):
        journal.append(SubmitFailed(attempt=1, reason=answer.reason, permanent=answer.permanent))
        return Outcome(run=run, problem=answer.reason, doubtful=answer.doubtful)
    journal.append(AttemptSubmitted(attempt=1, job_id=answer.job_id))
    return Outcome(run=run, job_id=answer.job_id)
