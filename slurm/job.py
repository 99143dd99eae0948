"""job.json: where and how an attempt was handed in. Written before and after the submission, read to find the job."""

import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from contract import files
from contract.layout import RunDir
from slurm.processes import boot_id

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """`job_id` "" stands there from the moment before the submission until its answer."""

    tag: str
    executor: str
    job_id: str
    host: str
    boot: str

    @property
    def this_boot(self) -> bool:
        """Whether it was handed in on this machine since its last boot, so that /proc tells the truth about it."""
        return self.host == socket.gethostname() and self.boot == boot_id()

    @property
    def rebooted(self) -> bool:
        """Whether the machine has booted since: a local job is certainly over."""
        return self.host == socket.gethostname() and self.boot != boot_id()


def submission_lock(run: RunDir, attempt: int) -> Path:
    """Held by whoever submits, and by the submitter itself: it may outlive a supervisor that is killed meanwhile."""
    return run.attempt(attempt).submission / "lock"


def write_job(run: RunDir, attempt: int, *, tag: str, executor: str, job_id: str) -> None:
    record = JobRecord(tag=tag, executor=executor, job_id=job_id, host=socket.gethostname(), boot=boot_id())
    files.replace_json(run.attempt(attempt).job, {"version": VERSION, **asdict(record)})


def read_job(run: RunDir, attempt: int) -> JobRecord | None:
    """The record, None when the attempt was never handed in.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    path = run.attempt(attempt).job
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return JobRecord(
            tag=str(value["tag"]),
            executor=str(value["executor"]),
            job_id=str(value["job_id"]),
            host=str(value["host"]),
            boot=str(value["boot"]),
        )
    except KeyError as error:
        raise ValueError(f"{path}: {error} is missing") from error
