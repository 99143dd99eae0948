"""Jobs that Slurm or an administrator takes away: by preemption of either kind, and by a requeue that we did not want."""

from pathlib import Path

import pytest

from contract import events as ev
from contract.control import read_claim
from contract.states import Cause, VerdictKind
from tests.cluster.conftest import Field, bodies, history, job_id, losses, newest, pid_of, wait_for
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(300)

STEPS = 2000
# One failure would stop the run: what Slurm does to it is none.
NO_FAILURES = {"max_failures": 1}


@pytest.mark.parametrize(
    "partition",
    ["spot", pytest.param("scavenge", marks=pytest.mark.slow)],  # PreemptMode=REQUEUE, and CANCEL
)
def test_a_preempted_run_waits_for_its_turn_and_goes_on(field: Field, partition: str) -> None:
    config = field.config(
        "--step-time", "0.05", run={"steps": STEPS}, job={"partition": partition}, supervisor=NO_FAILURES
    )
    run = field.submit(config)
    field.supervise()
    field.until_step(run, 12)
    at = newest(run)
    urgent = field.cluster.run(
        "sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 6"
    )
    verdict = field.until_event(run, ev.Judged, 60, at).body
    assert verdict.cause == Cause.PREEMPTED, verdict
    back = field.until_event(run, ev.Recovered, 90, at).body
    assert back.attempt == verdict.attempt + 1
    assert urgent not in {row.job_id for row in field.live_jobs(run)}
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(STEPS)
    assert f"({Cause.PREEMPTED}): {verdict.reason}" in field.explain(run)
    field.until_gone(run)


def test_a_requeue_by_an_administrator_is_answered_by_a_new_attempt(field: Field) -> None:
    """Slurm refuses it, as asked; an administrator can allow it all the same."""
    run = field.submit(field.config("--step-time", "0.05", run={"steps": STEPS}, supervisor=NO_FAILURES))
    field.supervise()
    field.until_step(run, 12)
    first = job_id(run)
    field.cluster.run("scontrol", "requeue", first, check=False)
    field.until_step(run, 15)
    assert "Restarts=0" in field.cluster.run("scontrol", "show", "job", first), "the job takes no requeue"

    at = newest(run)
    field.cluster.run("scontrol", "update", f"jobid={first}", "requeue=1")
    field.cluster.run("scontrol", "requeue", first)
    verdict, back = field.recovered(run, at, 90)
    assert (verdict.verdict, verdict.cause) == (VerdictKind.ENDED, Cause.PREEMPTED)
    assert back.attempt == verdict.attempt + 1
    assert [row.job_id for row in field.live_jobs(run) if row.state.alive] == [job_id(run)], (
        "the old one is gone"
    )
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(STEPS)
    assert verdict.reason in field.explain(run)


@pytest.mark.slow
def test_a_requeued_job_that_starts_again_unseen_refuses_its_old_attempt(field: Field) -> None:
    """Nobody watches: the job's second start finds the attempt claimed by its first, and leaves with 77."""
    run = field.submit(field.config("--step-time", "0.05", run={"steps": STEPS}, supervisor=NO_FAILURES))
    field.until_step(run, 12)
    first, workers = job_id(run), [Path(f"/proc/{pid_of(run, rank)}") for rank in (0, 1)]
    field.cluster.run("scontrol", "update", f"jobid={first}", "requeue=1")
    field.cluster.run("scontrol", "requeue", first)
    waiting = lambda: "JobState=PENDING" in field.cluster.run("scontrol", "show", "job", first)  # noqa: E731
    wait_for(waiting, 60, "the job waits for its second start")
    wait_for(lambda: not any(path.exists() for path in workers), 30, "the first workers' end")
    trained = max(losses(run))
    field.cluster.run("scontrol", "update", f"jobid={first}", "starttime=now")
    refused = lambda: "ExitCode=77:0" in field.cluster.run("scontrol", "show", "job", first)  # noqa: E731
    wait_for(refused, 60, lambda: f"the refusal\n{field.story(run)}")
    claim = read_claim(run, 1)
    assert claim is not None
    assert (claim.job_id, claim.restart) == (first, 0)
    assert max(losses(run)) == trained, "the second start trained"
    said = "".join(path.read_text() for path in run.attempt(1).submission.glob("*.out"))
    assert f"belongs to job {first}, restart 0" in said

    at = newest(run)  # before the supervisor comes: it may be quicker than we are
    field.supervise()
    verdict, back = field.recovered(run, at, 90)
    assert (verdict.cause, back.attempt) == (Cause.PREEMPTED, 2), verdict
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert len(bodies(run, ev.Judged)) == 1
    assert losses(run) == expected_losses(STEPS)
    assert len(history(run).attempts) == 2
