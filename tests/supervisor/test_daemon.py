"""The daemon itself: killed at any moment, refused beside another, clean at its end."""

import os
import random
import signal
import socket
import subprocess
import time

import pytest

from contract import events as ev
from contract.config import dump
from contract.files import create_json
from contract.journal import Journal
from contract.metrics import merged
from slurm.request import attempt_tag
from slurm.submit import Submitted, submit_attempt
from supervisor.demo.robot import Robot
from tests.standin import expected_losses
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import (
    Place,
    agents,
    alive,
    bodies,
    history,
    hurt,
    wait_for_step,
    workers,
)


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def test_killed_at_random_moments_it_still_saves_the_run(place) -> None:
    run = place.submit("--step-time", "0.05", steps=60)
    dice = random.Random(7)
    hurt(wait_for_step(run, 8, rank=1), signal.SIGKILL)
    hurt_again = False
    for start in range(1, 41):
        process = place.supervise("--until-done")
        # The dice count from its first word: on a busy machine starting alone takes seconds.
        wait_for(lambda start=start: place.log.read_text().count("supervises") >= start)
        try:
            assert process.wait(0.05 + dice.random() * 1.2) == 0
            break
        except subprocess.TimeoutExpired:  # still at work: now is the moment
            process.kill()
            process.wait()
        assert len(alive(run)) <= 1
        live = [worker for worker in workers(run).values() if worker.exit_code is None and worker.step > 30]
        if live and not hurt_again:
            hurt_again = True
            hurt(live[0], signal.SIGKILL)
    else:
        pytest.fail("the run was not finished")
    assert history(run).state == "completed"
    assert {step: row["loss"] for step, row in merged(run).items()} == expected_losses(60)
    assert [item.attempt for item in bodies(run, ev.AttemptIntended)] == [1]


def test_a_second_one_names_the_first_and_ends_with_1(place) -> None:
    first = place.supervise()
    wait_for(lambda: place.log.exists() and "supervises" in place.log.read_text())
    second = place.ciuic("supervise")
    assert second.returncode == 1
    assert f"pid {first.pid} on " in second.stderr
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 0


def test_its_end_leaves_the_job_alone(place) -> None:
    run = place.submit("--step-time", "0.05", steps=2000)
    process = place.supervise()
    wait_for_step(run, 5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    worker = workers(run)[0]
    wait_for_step(run, worker.step + 10)
    assert "the jobs go on" in place.log.read_text()


def test_once_does_what_is_due_and_ends(place) -> None:
    run = place.submit("--step-time", "0.05", steps=2000)
    hurt(wait_for_step(run, 6), signal.SIGKILL)
    wait_for(lambda: all(worker.exit_code is not None for worker in workers(run).values()))
    assert place.supervise("--once").wait(30) == 0
    assert [item.verdict for item in bodies(run, ev.Judged)] == ["crashed"]
    assert bodies(run, ev.GenerationIntended)


def test_a_broken_run_does_not_stop_the_others(place) -> None:
    run = place.submit("--step-time", "0.02", steps=20)
    other = place.root.run("broken-1")
    other.path.mkdir()
    other.config.write_text("not toml [")
    other.journal.write_text(run.journal.read_text())
    process = place.supervise()
    wait_for(lambda: history(run).state == "completed")
    wait_for(lambda: "broken-1: this round broke" in place.log.read_text())
    assert process.poll() is None


def test_systemd_is_told_that_it_is_ready_awake_and_ending(place, tmp_path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(10)
        listening.bind(str(tmp_path / "notify"))
        process = place.supervise(NOTIFY_SOCKET=str(tmp_path / "notify"))
        first = listening.recv(4096).decode().splitlines()
        assert {"READY=1", "WATCHDOG=1", "STATUS=0 of 0 runs in care"} == set(first)
        process.send_signal(signal.SIGTERM)
        while listening.recv(4096) != b"STOPPING=1":
            pass
        assert process.wait(10) == 0


@pytest.mark.parametrize("handed_in", [True, False])
def test_a_submission_in_doubt_keeps_its_number(place, handed_in: bool) -> None:
    """Killed between the intent and its outcome: the job is adopted if it exists, else submitted, never twice."""
    run, config = place.create("--step-time", "0.02", steps=10)
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.replay()
    journal.append(ev.AttemptIntended(attempt=1, tag=attempt_tag(run.run_id, 1), reason="submitted"))
    journal.close()
    if handed_in:
        assert isinstance(submit_attempt(run, config, 1), Submitted)
        wait_for(lambda: alive(run))
    assert place.supervise("--until-done").wait(60) == 0
    found = bodies(run, ev.AttemptSubmitted)
    assert [(item.attempt, item.adopted) for item in found] == [(1, handed_in)]
    assert [item.attempt for item in bodies(run, ev.AttemptIntended)] == [1]
    assert history(run).state == "completed"


def test_one_that_comes_while_slurm_is_silent_says_so_and_does_nothing(place) -> None:
    """It has never seen the job: nothing is certain but that, and people must learn of it (rule 3)."""
    run, local = place.create(steps=10)
    config = local.model_copy(
        update={
            "job": local.job.model_copy(update={"executor": "slurm"}),
            "monitor": local.monitor.model_copy(update={"unknown_alert_s": 10.0}),
        }
    )
    run.config.write_text(dump(config))
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.replay()
    journal.append(ev.AttemptIntended(attempt=1, tag=attempt_tag(run.run_id, 1), reason="submitted"))
    journal.append(ev.AttemptSubmitted(attempt=1, job_id="5"))
    journal.close()
    place.supervise(SLURM_CONF="/none")
    wait_for(lambda: bodies(run, ev.AlertQueued), seconds=40)
    assert bodies(run, ev.AlertQueued)[0].key.startswith("unknown:")
    assert history(run).state == "unknown"
    assert len(bodies(run, ev.AttemptIntended)) == 1
    assert not bodies(run, ev.CancelIntended)


def test_an_overtaken_daemon_ends_and_writes_nothing(place) -> None:
    run = place.submit("--step-time", "0.05", steps=2000)
    process = place.supervise()
    wait_for(lambda: bodies(run, ev.SupervisorStarted))
    wait_for_step(run, 3)
    create_json(place.root.supervisor(os.getuid()).epoch(2), {})  # as a supervisor on another host would
    assert process.wait(10) == 1
    assert "was overtaken" in place.log.read_text()
    before = run.journal.read_bytes()
    wait_for_step(run, workers(run)[0].step + 5)
    assert run.journal.read_bytes() == before


def test_a_journal_that_is_replaced_is_taken_up_afresh(place) -> None:
    """`sed -i`, an editor: what we wrote on would be seen by nobody."""
    run = place.submit("--step-time", "0.05", steps=60)
    process = place.supervise("--until-done")
    wait_for(lambda: history(run).newest_checkpoint)
    aside = run.path / "journal.new"
    aside.write_bytes(run.journal.read_bytes())
    aside.rename(run.journal)
    assert process.wait(60) == 0
    assert "journal.jsonl was replaced by another file while we wrote it" in place.log.read_text()
    assert history(run).state == "completed"
    assert len(bodies(run, ev.SupervisorStarted)) >= 2


@pytest.mark.parametrize("ended", [True, False])
def test_an_attempt_that_the_journal_has_forgotten_keeps_its_number(place, ended: bool) -> None:
    """A restored journal knows attempt 1 only. Attempt 2's claim and exits would pass for the new job's."""
    run = place.submit("--step-time", "0.05", steps=40)
    process = place.supervise()
    wait_for_step(run, 12)
    for number in (1, 2):
        wait_for(lambda number=number: [*agents(run, number)])
        wait_for_step(run, 12, attempt=number)
        if number == 2:
            process.kill()
            process.wait()
        for agent in agents(run, number):
            os.kill(agent.pid, signal.SIGKILL)
    wait_for(lambda: not alive(run))
    lines = run.journal.read_text().splitlines(keepends=True)
    kind = "attempt-intended" if ended else "attempt-ended"
    cut = [index for index, line in enumerate(lines) if kind in line][ended]
    run.journal.write_text("".join(lines[:cut]))
    claim = run.attempt(2).claim.read_bytes()
    assert place.supervise("--until-done").wait(60) == 0
    assert [item.attempt for item in bodies(run, ev.AttemptIntended)] == [1, 3]
    assert run.attempt(2).claim.read_bytes() == claim
    assert history(run).state == "completed"


def test_a_forgotten_attempt_that_still_runs_is_not_joined_by_another(place) -> None:
    run, config = place.create("--step-time", "0.05", steps=4000)
    assert isinstance(submit_attempt(run, config, 1), Submitted)
    wait_for(lambda: alive(run))
    place.supervise()
    wait_for(lambda: "the journal does not know attempt 1" in place.log.read_text())
    assert not bodies(run, ev.AttemptIntended)
    assert alive(run) == [1]


@pytest.mark.parametrize("how", ["is empty", "is missing", "does not tell"])
def test_a_lost_journal_is_told_and_nothing_is_done(place, how: str) -> None:
    run, _ = place.create(steps=10)
    if how == "is empty":
        run.journal.write_text("")
    elif how == "is missing":
        run.journal.unlink()
    else:
        run.journal.write_text("not json\n")
    assert place.supervise("--once").wait(30) == 0
    assert f"left alone: journal.jsonl {how}" in place.log.read_text()
    assert run.journal.exists() is (how != "is missing")
    facts = place.facts(run)
    assert (facts["run"], facts["state"]) == (run.run_id, "unknown")
    assert f"journal.jsonl {how}" in facts["reason"]
    assert len(facts["journal_problems"]) == (how == "does not tell")
    story = place.ciuic("explain", run.run_id, "--lang", "en")
    assert story.returncode == 0
    assert "Submit" not in story.stdout
    assert f"journal.jsonl {how}" in story.stdout
    assert not [*run.attempts.iterdir()]


def test_a_damaged_line_is_among_the_facts(place) -> None:
    run, _ = place.create(steps=10)
    with run.journal.open("a") as file:
        file.write("not json\n")
    facts = place.facts(run)
    assert (facts["run"], facts["state"]) == (run.run_id, "pending")
    assert "at byte" in facts["journal_problems"][0]
