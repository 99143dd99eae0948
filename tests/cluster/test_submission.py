"""Exactly one job for each attempt, whatever sbatch says and whenever the supervisor dies; and what people do to jobs."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from contract import events as ev
from contract.config import load
from contract.states import JobState
from slurm.create import create_run, first_attempt
from slurm.submit import render_dry_run
from tests.cluster.conftest import Field, beats, bodies, history, job_id, losses, newest, wait_for
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(200)

REAL = shutil.which("sbatch")
# Each stands before the real sbatch in PATH, once: the second call goes straight through.
BEHAVIOURS = {
    "hangs after the job got in": "{real} \"$@\" >/dev/null; exec sleep 300",
    "loses the reply": "{real} \"$@\" >/dev/null; echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
    "prints a warning and the id": "echo 'sbatch: warning: can_t honor --ntasks-per-node'; {real} \"$@\"",
    "fails cleanly": "echo 'sbatch: error: Slurm temporarily unable to accept job' >&2; exit 1",
}


def wrap_sbatch(field: Field, folder: Path, behaviour: str) -> Path:
    """Returns the file that counts the calls."""
    calls = folder / "calls"
    wrapper = folder / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"#!/bin/sh\necho call >> '{calls}'\n"
        f"[ $(wc -l < '{calls}') -gt 1 ] && exec {REAL} \"$@\"\n{behaviour.format(real=REAL)}\n"
    )
    wrapper.chmod(0o755)
    field.path = str(wrapper.parent)
    return calls


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_one_job_whatever_sbatch_says(field: Field, tmp_path: Path, behaviour: str) -> None:
    calls = wrap_sbatch(field, tmp_path, BEHAVIOURS[behaviour])
    run = field.create(field.config(run={"steps": 20}, supervisor={"submit_timeout_s": 4.0}))
    field.supervise()
    assert field.until_end(run) == "completed"
    attempts = history(run).attempts
    assert len(attempts) == 1
    lost = behaviour in {"hangs after the job got in", "loses the reply"}
    assert [event.adopted for event in bodies(run, ev.AttemptSubmitted)] == [lost]
    assert len(calls.read_text().split()) == (2 if behaviour == "fails cleanly" else 1)
    assert losses(run) == expected_losses(20)


def test_a_supervisor_killed_between_intent_and_outcome(field: Field, tmp_path: Path) -> None:
    """sbatch takes a while; the supervisor dies meanwhile, its submitter does not; the next one comes at once."""
    calls = wrap_sbatch(field, tmp_path, "sleep 2; exec {real} \"$@\"")
    run = field.create(field.config(run={"steps": 20}))
    field.supervise()
    wait_for(calls.exists, 30, "sbatch")
    field.kill_supervisor()
    field.supervise()
    assert field.until_end(run) == "completed"
    assert [event.adopted for event in bodies(run, ev.AttemptSubmitted)] == [True]
    assert len(calls.read_text().split()) == 1, "submitted twice"


def test_what_people_do_to_jobs(field: Field) -> None:
    """Held and released, beside arrays of others; then cancelled: that is final, and told."""
    other = field.cluster.run(
        "sbatch", "--parsable", "--array=1-3%1", "--hold", "-o", "/dev/null", "--wrap", "sleep 60"
    )
    het = field.cluster.run(
        "sbatch", "--parsable", "-N1", "--hold", "-o", "/dev/null", ":", "-N1", "--wrap", "sleep 60"
    )
    config = field.config("--step-time", "0.1", run={"steps": 5000}, job={"sbatch": {"gres": "gpu:1", "hold": ""}})
    run = field.submit(config)
    field.supervise()
    held = field.until_event(run, ev.AlertQueued, 30)
    assert held.body.key == "held:1"
    assert "JobHeldUser" in str(held.body.text)
    wait_for(lambda: any("挂起" in text for text in field.robot.texts()), 10, "the message")
    field.cluster.run("scontrol", "release", job_id(run))
    field.until_step(run, 5)
    field.cluster.run("scancel", job_id(run))
    assert field.until_end(run) == "cancelled"
    assert len(bodies(run, ev.AttemptIntended)) == 1
    assert "not by the supervisor" in field.explain(run)
    wait_for(lambda: any("取消" in text for text in field.robot.texts()), 10, "the message")
    field.until_gone(run)
    field.cluster.run("scancel", other, het.split("+")[0])


def test_a_silent_controller_is_no_reason_to_act(field: Field) -> None:
    run = field.submit(field.config("--step-time", "0.1", run={"steps": 5000}))
    field.supervise()
    field.until_step(run, 5)
    at = newest(run)
    field.cluster.stop_controller()
    told = field.until_event(run, ev.AlertQueued, 120, at)
    assert told.body.key == "queue:1"
    field.until_step(run, max(worker.step for beat in beats(run) for worker in beat.workers) + 5)
    field.cluster.start_controller()
    field.ciuic("cancel", run.run_id)
    assert field.until_end(run) == "cancelled"
    kinds = {type(event) for event in bodies(run, ev.Body)} - {ev.CheckpointSeen}
    assert not kinds & {ev.Judged, ev.GenerationIntended}, "something was done"
    field.until_gone(run)
    assert field.job_state(run, 1) is JobState.ENDED_CANCELLED


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"partition": "nowhere"}, "nvalid partition"),
        ({"sbatch": {"reservation": "x; touch 团队' $(touch pwned) `touch pwned`"}}, "reservation is invalid"),
    ],
)
def test_what_cannot_be_submitted_is_said_once_and_for_all(field: Field, job: dict[str, Any], said: str) -> None:
    run = create_run(field.config(job=job), field.root.path)
    assert said in first_attempt(run, field.config(job=job)).problem
    field.supervise()
    assert field.until_end(run) == "failed"
    assert said in history(run).reason
    assert len(bodies(run, ev.SubmitFailed)) == 1
    assert not list(field.root.path.rglob("pwned"))
    assert not Path("pwned").exists()
