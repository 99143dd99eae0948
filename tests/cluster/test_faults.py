"""One run under one fault after the other on a real Slurm; the training must not notice, and the journal must tell."""

import time

import pytest

from contract import events as ev
from contract.layout import RunDir
from contract.states import JobState
from tests.cluster import faults
from tests.cluster.conftest import Field, bodies, history, losses, members, newest
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(900)  # four minutes on an idle machine

STEPS = 6000


def calm(field: Field, run: RunDir) -> None:
    """Let a checkpoint of the newest generation come into being: a fault after progress is fair."""
    field.until_event(run, ev.CheckpointSeen, 60, newest(run))


def undisturbed_by_silence(field: Field, run: RunDir) -> None:
    """A controller that was silent for a minute: told, and nothing done; training went on."""
    silent = field.until_event(run, ev.QueueSilent, 10)
    field.until_event(run, ev.AlertQueued, 10, silent.seq, severity="warning")
    assert max(losses(run)) > 300, "it trained through the silence"
    field.ciuic("cancel", run.run_id)
    assert field.until_end(run) == "cancelled"
    assert not bodies(run, ev.Judged)
    assert not bodies(run, ev.GenerationIntended)
    field.until_gone(run)
    assert field.job_state(run, 1) is JobState.ENDED_CANCELLED


def test_a_run_survives_one_fault_after_the_other(field: Field) -> None:
    config = field.config("--step-time", "0.05", run={"steps": STEPS}, job={"spare_nodes": 1})
    run = field.submit(config)
    field.supervise()
    field.until_step(run, 12)
    story, killer = [], faults.SupervisorKiller(field)

    def suffer(fault: faults.Fault, kills: int = 2) -> None:
        calm(field, run)
        began, before = time.monotonic(), killer.kills
        print(f"{fault.__name__} …")
        try:
            with killer.at_work(kills):
                verdict, back = fault(field, run)
        except BaseException:
            print(field.explain(run))
            raise
        assert killer.kills > before, f"{fault.__name__} was over before a supervisor was killed"
        story.append((verdict, back))
        print(
            f"found after {verdict.detected_s:.1f} s, lost {back.detect_s + back.restart_s:.1f} s,"
            f" {back.repeated_steps} steps repeated, {time.monotonic() - began:.1f} s in all;"
            f" {killer.kills} supervisors killed so far"
        )

    suffer(faults.rank_killed)
    suffer(faults.rank_stopped)
    suffer(faults.agent_killed)
    suffer(faults.node_lost)  # no spare is left
    field.cluster.start_node(story[-1][0].nodes[0])
    suffer(faults.step_cancelled)
    suffer(faults.zombie_node)
    field.cluster.start_node(story[-1][0].nodes[0])
    suffer(faults.time_limit)
    suffer(faults.prolog_failed)
    field.cluster.heal_drained()
    bystander = field.submit(
        field.config("--step-time", "0.1", run={"steps": 5000}, job={"nodes": 1, "ranks_per_node": 2})
    )
    field.until_step(bystander, 5)
    suffer(faults.controller_stopped_in_submission, kills=3)
    undisturbed_by_silence(field, bystander)

    assert killer.kills >= 10
    calm(field, run)
    attempts = len(bodies(run, ev.AttemptIntended))
    with killer.at_work(1):
        field.cluster.stop_controller()
        field.cluster.start_controller()
        field.until_step(run, max(losses(run)) + 3)
    assert len(bodies(run, ev.AttemptIntended)) == attempts, "a controller that restarts costs nothing"
    completes(field, run, story)


def completes(field: Field, run: RunDir, story: list[faults.Outcome]) -> None:
    """With the losses of an undisturbed run; and the journal tells of each fault its cause and its node."""
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(STEPS)
    field.until_gone(run)
    told = field.explain(run)
    for verdict, _ in story:
        assert f"judged {verdict.verdict} ({verdict.cause}): {verdict.reason}" in told
        assert all(node in verdict.reason for node in verdict.nodes), verdict
    assert history(run).alerts_failed == 0


def test_a_node_that_is_back_before_slurm_has_missed_it(field: Field) -> None:
    run = field.submit(field.config("--step-time", "0.05", run={"steps": STEPS}, job={"spare_nodes": 1}))
    field.supervise()
    field.until_step(run, 12)
    completes(field, run, [faults.node_back_soon(field, run)])


@pytest.mark.slow
@pytest.mark.parametrize("spares", [1, 0])
def test_the_node_with_the_script_of_the_job_is_a_node_like_the_others(field: Field, spares: int) -> None:
    """srun dies with it. The other agents live on, and Slurm leaves them alone."""
    config = field.config("--step-time", "0.05", run={"steps": STEPS}, job={"spare_nodes": spares})
    run = field.submit(config)
    field.supervise()
    field.until_step(run, 12)
    host = faults.script_node(field, run)
    story = [faults.node_lost(field, run, host)]
    assert story[0][1].attempt == (1 if spares else 2)
    field.cluster.start_node(host)
    completes(field, run, story)


@pytest.mark.slow
def test_a_node_daemon_that_dies_alone_is_taken_out_by_slurm_in_its_own_time(field: Field) -> None:
    config = field.config("--step-time", "0.05", run={"steps": STEPS}, job={"spare_nodes": 1})
    run = field.submit(config)
    field.supervise()
    field.until_step(run, 12)
    faults.daemon_lost(field, run)
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(STEPS)


@pytest.mark.slow
def test_a_run_that_needs_every_node_waits_for_the_lost_one(field: Field) -> None:
    """Excluding it would keep the job from ever starting again."""
    run = field.submit(field.config("--step-time", "0.05", run={"steps": STEPS}, job={"nodes": 4}))
    field.supervise()
    field.until_step(run, 12)
    at, lost = newest(run), members(run)[3]
    field.cluster.kill_node(lost)
    verdict = field.until_event(run, ev.Judged, 60, at).body
    assert verdict.nodes == (lost,)
    again = field.until_event(run, ev.AttemptIntended, 120, at).body
    assert again.exclude == ()
    assert f"not excluded after all: {lost}" in field.log.read_text()
    field.cluster.start_node(lost)
    completes(field, run, [(verdict, field.until_event(run, ev.Recovered, 90, at).body)])
