"""Exactly one job for each attempt, whatever sbatch says and whenever the supervisor dies; and what people do to jobs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract import events as ev
from slurm.create import create_run, first_attempt
from tests.cluster.conftest import Field, bodies, history, job_id, losses, wait_for
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(200)

REAL = shutil.which("sbatch")
# How sbatch behaves the first time for the run whose name begins so; the second call goes straight through.
BEHAVIOURS = {
    "hangs": '{real} "$@" >/dev/null; exec sleep 300',
    "loses": "{real} \"$@\" >/dev/null; echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1",
    "warns": "echo 'sbatch: warning: can_t honor --ntasks-per-node set to 1'; exec {real} \"$@\"",
    "fails": "echo 'sbatch: error: Slurm temporarily unable to accept job' >&2; exit 1",
    "dawdles": 'sleep 2; exec {real} "$@"',
}


@pytest.fixture
def calls(field: Field, tmp_path: Path) -> Callable[[str], int]:
    """Puts a wrapper before the real sbatch; returns how often it was called for runs with this name."""
    cases = "\n".join(f"*/{name}-*) {text.format(real=REAL)};;" for name, text in BEHAVIOURS.items())
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || echo "$*" >> \'{tmp_path}/calls\'\n'
        f'name=$(basename "$(pwd)")\n[ -e \'{tmp_path}\'/"$name" ] && exec {REAL} "$@"\n'
        f'touch \'{tmp_path}\'/"$name"\ncase "$(pwd)" in\n{cases}\nesac\nexec {REAL} "$@"\n'
    )
    wrapper.chmod(0o755)
    field.path = str(wrapper.parent)
    return lambda name: sum(f"/{name}-" in line for line in (tmp_path / "calls").read_text().splitlines())


def test_one_job_whatever_sbatch_says(field: Field, calls: Callable[[str], int]) -> None:
    names = [name for name in BEHAVIOURS if name != "dawdles"]
    runs = {
        name: field.create(
            field.config(run={"steps": 20, "name": name}, supervisor={"submit_timeout_s": 4.0})
        )
        for name in names
    }
    field.supervise()
    for name, run in runs.items():
        assert field.until_end(run) == "completed", name
        assert len(history(run).attempts) == 1, name
        lost = name in {"hangs", "loses"}
        assert [event.adopted for event in bodies(run, ev.AttemptSubmitted)] == [lost], name
        assert calls(name) == (2 if name == "fails" else 1), name
        assert losses(run) == expected_losses(20)


def test_a_supervisor_killed_between_intent_and_outcome(
    field: Field, calls: Callable[[str], int], tmp_path: Path
) -> None:
    """sbatch takes a while; the supervisor dies meanwhile, its submitter does not; the next one comes at once."""
    run = field.create(field.config(run={"steps": 20, "name": "dawdles"}))
    field.supervise()
    wait_for((tmp_path / "calls").exists, 30, "sbatch")
    field.kill_supervisor()
    field.supervise()
    assert field.until_end(run) == "completed"
    assert [event.adopted for event in bodies(run, ev.AttemptSubmitted)] == [True]
    assert calls("dawdles") == 1, "submitted twice"


def test_what_people_do_to_jobs(field: Field) -> None:
    """Held and released, beside arrays of others; then cancelled: that is final, and told."""
    other = field.cluster.run(
        "sbatch", "--parsable", "--array=1-3%1", "--hold", "-o", "/dev/null", "--wrap", "sleep 60"
    )
    het = field.cluster.run(
        "sbatch", "--parsable", "-N1", "--hold", "-o", "/dev/null", ":", "-N1", "--wrap", "sleep 60"
    )
    config = field.config(
        "--step-time", "0.1", run={"steps": 5000}, job={"sbatch": {"gres": "gpu:1", "hold": ""}}
    )
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


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"partition": "nowhere"}, "nvalid partition"),
        (
            {"sbatch": {"reservation": "x; touch 团队' $(touch pwned) `touch pwned`"}},
            "reservation is invalid",
        ),
    ],
)
def test_what_cannot_be_submitted_is_said_once_and_for_all(
    field: Field, job: dict[str, Any], said: str
) -> None:
    run = create_run(field.config(job=job), field.root.path)
    assert said in first_attempt(run, field.config(job=job)).problem
    field.supervise()
    assert field.until_end(run) == "failed"
    assert said in history(run).reason
    assert len(bodies(run, ev.SubmitFailed)) == 1
    assert not list(field.root.path.rglob("pwned"))
    assert not Path("pwned").exists()


def test_what_will_not_start_by_itself_is_told(field: Field) -> None:
    """A launch that failed and left the job held; and more nodes than there are, which Slurm accepts all the same."""
    config = field.config(run={"steps": 20}, job={"sbatch": {"gres": "gpu:1", "hold": ""}})
    run = field.submit(config)
    greedy = field.submit(field.config(run={"steps": 20}, job={"nodes": 5}))
    for node in field.cluster.nodes:
        field.cluster.fail_prolog(node)
    # Where a requeue is allowed (an administrator's doing: we ask for none) Slurm holds the job after a failed prolog.
    field.cluster.run("scontrol", "update", f"jobid={job_id(run)}", "requeue=1")
    field.cluster.run("scontrol", "release", job_id(run))
    failed = lambda: "launch failed" in field.cluster.run("squeue", "-h", "-o", "%r", "-j", job_id(run))  # noqa: E731
    wait_for(failed, 60, lambda: f"the failed launch\n{field.story(run)}")
    field.supervise()
    told = field.until_event(run, ev.AlertQueued, 30, key="held:1")
    assert "launch failed requeued held" in str(told.body.text)
    told = field.until_event(greedy, ev.AlertQueued, 30, key="held:1")
    assert "PartitionNodeLimit" in str(told.body.text)
    field.ciuic("cancel", greedy.run_id)

    for node in field.cluster.nodes:
        field.cluster.fail_prolog(node, fail=False)
    field.cluster.heal_drained()
    field.cluster.run("scontrol", "release", job_id(run))
    field.cluster.run("scontrol", "update", f"jobid={job_id(run)}", "starttime=now")  # else after two minutes
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(20)
    assert len(bodies(run, ev.AttemptIntended)) == 1
    assert field.until_end(greedy) == "cancelled"
    field.until_gone(greedy)
