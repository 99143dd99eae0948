"""The daemon itself: killed at any moment, refused beside another, clean at its end."""

import os
import random
import signal
import socket
import subprocess
import time

import pytest

from contract import events as ev
from contract.files import create_json
from contract.journal import Journal
from contract.metrics import merged
from slurm.request import attempt_tag
from slurm.submit import Submitted, submit_attempt
from supervisor.demo.robot import Robot
from tests.standin import expected_losses
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import Place, alive, bodies, history, hurt, wait_for_step, workers


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
    for _ in range(40):
        process = place.supervise("--until-done")
        try:
            assert process.wait(0.45 + dice.random() * 1.2) == 0
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
