"""Slurm with accounting: what `sacct` says of jobs that the controller has forgotten, and what its silence does not say."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import events as ev
from contract.layout import RunDir
from contract.states import JobState
from slurm.queue import Job, JobSeen, SlurmQueue
from supervisor.demo.robot import Robot
from tests.cluster import accounting, slurm_cluster
from tests.cluster.conftest import KEY, Field, bodies, history, job_id, running, wait_for
from tests.cluster.slurm_cluster import Cluster, missing_programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def accounted() -> Iterator[Cluster]:
    """Two nodes with slurmdbd and a database; the controller forgets a job within a minute of its end."""
    missing = missing_programs((*slurm_cluster.PROGRAMS, *accounting.PROGRAMS))
    if missing:
        packages = f"{slurm_cluster.PACKAGES} {accounting.PACKAGES}"
        pytest.skip(
            f"no accounting here: {', '.join(missing)} missing; on Debian: apt-get install {packages}"
        )
    with running(lambda cluster: cluster.up(nodes=2, accounted=True, min_job_age_s=2)) as made:
        yield made


@pytest.fixture
def place(accounted: Cluster, tmp_path: Path) -> Iterator[Field]:
    with Robot(key=KEY) as robot:
        made = Field(accounted, tmp_path, robot)
        yield made
        made.close()


def seen(run: RunDir) -> JobSeen:
    job = Job(run=run, attempt=1, job_id=job_id(run, 1))
    return SlurmQueue().look([job])[job.key]


def until_forgotten(place: Field, run: RunDir) -> None:
    def gone() -> bool:
        return not place.cluster.run("scontrol", "-o", "show", "job", job_id(run, 1), check=False)

    wait_for(gone, 120, "the controller forgets the job")


def test_how_jobs_ended_is_read_from_sacct(place: Field) -> None:
    one = {"nodes": 1, "ranks_per_node": 2}
    good = place.submit(place.config(run={"steps": 5}, job=one))
    saved = place.submit(place.config("--step-time", "0.1", run={"steps": 5000}, job=one))
    unwanted = place.submit(place.config("--step-time", "0.1", run={"steps": 5000}, job=one))
    wait_for(lambda: seen(unwanted).state is JobState.RUNNING, 60, "the job runs")
    assert seen(unwanted).nodes
    place.until_step(unwanted, 2)
    place.until_step(saved, 2)
    place.cluster.run("scancel", job_id(unwanted))
    place.cluster.run("scancel", "--signal=USR1", job_id(saved))
    for run in (good, saved, unwanted):
        until_forgotten(place, run)
    found = {run.run_id: seen(run) for run in (good, saved, unwanted)}
    assert (found[good.run_id].state, found[good.run_id].exit) == (JobState.ENDED_OK, "0:0")
    assert (found[saved.run_id].state, found[saved.run_id].exit) == (JobState.ENDED_FAILED, "75:0")
    cancelled = found[unwanted.run_id]
    assert cancelled.state is JobState.ENDED_CANCELLED
    assert cancelled.reason.startswith("CANCELLED by ")
    assert len(cancelled.nodes) == 1

    place.cluster.stop_controller()
    assert seen(good).state is JobState.UNKNOWN, "the controller is silent, whatever accounting says"
    place.cluster.start_controller()
    assert seen(good).state is JobState.ENDED_OK


def test_accounting_that_is_down_or_behind_is_no_death(place: Field) -> None:
    """A person cancels while nobody watches, and accounting is down when the supervisor comes back."""
    run = place.submit(
        place.config("--step-time", "0.05", run={"steps": 5000}, monitor={"unknown_alert_s": 10.0})
    )
    place.supervise()
    place.until_step(run, 3)
    place.kill_supervisor()
    place.cluster.stop_accounting()
    place.cluster.run("scancel", job_id(run))
    until_forgotten(place, run)
    assert seen(run).state is JobState.UNKNOWN
    place.supervise()
    told = place.until_event(run, ev.AlertQueued, 60)
    assert "accounting does not answer" in str(told.body.text)
    assert len(bodies(run, ev.AttemptIntended)) == 1
    assert history(run).state == "unknown"

    place.cluster.start_accounting()
    place.until_end(run, 120)
    assert history(run).state == "cancelled"
    assert len(bodies(run, ev.AttemptIntended)) == 1, "a cancelled run was submitted again"
    assert seen(run).reason.startswith("CANCELLED by ")
    assert "CANCELLED by " in place.explain(run)


# sbatch takes the job in, a person cancels it before it starts, and its answer comes when Slurm has forgotten it.
LATE = """#!/bin/sh
[ "$1" = --version ] && exec {real} "$@"
echo "$*" >> '{calls}'
id=$({real} --parsable --hold{comment} "$@") || exit 1
scancel "$id"
while scontrol show job "$id" >/dev/null 2>&1; do sleep 0.2; done
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1
"""


@pytest.mark.parametrize("comment", ["", " --comment=other"], ids=["by the tag", "by the command line"])
def test_a_job_that_got_in_unheard_and_was_cancelled_is_not_submitted_again(
    place: Field, tmp_path: Path, comment: str
) -> None:
    calls, wrapper = tmp_path / "calls", tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(LATE.format(real=shutil.which("sbatch"), calls=calls, comment=comment))
    wrapper.chmod(0o755)
    place.path = str(wrapper.parent)
    run = place.create(place.config(run={"steps": 5}, supervisor={"submit_timeout_s": 150.0}))
    place.supervise()
    assert place.until_end(run, 200) == "cancelled"
    assert [event.adopted for event in bodies(run, ev.AttemptSubmitted)] == [True]
    assert len(calls.read_text().splitlines()) == 1, "submitted again"
    assert "CANCELLED by " in place.explain(run)
