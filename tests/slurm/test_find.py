"""A submission in doubt is looked up: in the queue, and, when the controller has forgotten the job, in accounting."""

import os
import time
from collections.abc import Sequence

import pytest

from contract.layout import RunDir
from slurm.find import Finding, find_attempt
from slurm.job import write_job
from slurm.request import attempt_tag
from slurm.squeue import Answer

TAG = attempt_tag("deep-1", 1)
SCRIPT = "sbatch /shared/runs/deep-1/attempts/0001/submission/submission_file_12ab.sh"
OTHER = SCRIPT.replace("0001", "0002")


class Slurm:
    """squeue without jobs, and a sacct that says what it is told to."""

    def __init__(self, sacct: Answer | None) -> None:
        self.sacct = sacct
        self.questions: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str]) -> Answer | None:
        if command[0] == "squeue":
            return Answer(code=0, out="", err="")
        self.questions.append(command)
        return self.sacct


def rows(*lines: str) -> Answer:
    return Answer(code=0, out="\n".join(lines) + "\n", err="")


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = RunDir(path=tmp_path / "deep-1")
    run.attempt(1).submission.mkdir(parents=True)
    write_job(run, 1, tag=TAG, executor="slurm", job_id="")
    return run


@pytest.mark.parametrize(
    ("said", "job_id"),
    [
        (rows(f"41|CANCELLED by 1000|deep-1|{TAG}|{SCRIPT}"), "41"),
        (rows(f"41|COMPLETED|deep-1||{SCRIPT}"), "41"),  # this cluster keeps no comments
        (rows(f"41|FAILED|deep-1|{TAG}|"), "41"),
        (rows(f"40|FAILED|deep-1||{OTHER}", f"41|NODE_FAIL|deep-1||{SCRIPT}"), "41"),
        (rows(f"40|FAILED|deep-1|{attempt_tag('deep-1', 2)}|{OTHER}"), ""),  # of another attempt
        (rows(f"41|RUNNING|deep-1|{TAG}|{SCRIPT}"), ""),  # the controller does not know it: it was lost
        (rows("motd of the day", ""), ""),
        (rows(), ""),
        (Answer(code=1, out="", err="Slurm accounting storage is disabled"), ""),
        (Answer(code=1, out="", err="sacct: error: slurmdbd: Connection refused"), ""),
        (Answer(code=1, out="", err="sacct: error: Invalid field requested: SubmitLine"), ""),
        (Answer(code=127, out="", err="sacct: not installed"), ""),
        (None, ""),
    ],
)
def test_accounting_remembers_what_the_controller_has_forgotten(run, said, job_id) -> None:
    """Where it is off, silent or does not know, nothing changes: the controller's word is enough."""
    found = find_attempt(run, 1, Slurm(said))
    assert (found.finding, found.job_id) == (Finding.FOUND if job_id else Finding.ABSENT, job_id)


@pytest.mark.parametrize(
    ("age_s", "since"), [(5.0, "now-3hours"), (3 * 86_400.0, "now-75hours"), (-60.0, "now-2hours")]
)
def test_accounting_is_asked_about_this_name_and_this_time_only(run, age_s, since) -> None:
    at = time.time() - age_s
    os.utime(run.attempt(1).job, (at, at))
    slurm = Slurm(rows())
    find_attempt(run, 1, slurm)
    [question] = slurm.questions
    assert "--name=deep-1" in question
    hours = int(since.removeprefix("now-").removesuffix("hours"))
    assert question[question.index("-S") + 1] in {since, f"now-{hours - 1}hours"}


def test_a_job_whose_number_is_known_needs_no_accounting(run) -> None:
    write_job(run, 1, tag=TAG, executor="slurm", job_id="41")
    slurm = Slurm(rows())
    assert find_attempt(run, 1, slurm).job_id == "41"
    assert not slurm.questions
