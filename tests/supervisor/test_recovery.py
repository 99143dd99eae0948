"""A real run is hurt from outside; a real supervisor saves it."""

import json
import os
import signal

import pytest

from contract import events as ev
from contract.manifest import directories, read_resumes, retire
from contract.metrics import merged
from contract.states import Phase
from supervisor.demo.robot import Answer, Robot
from tests.standin import expected_losses
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import (
    Place,
    agents,
    alive,
    bodies,
    history,
    hurt,
    judged,
    wait_for_state,
    wait_for_step,
    workers,
)


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def _same_as_undisturbed(run, steps: int) -> None:
    assert {step: row["loss"] for step, row in merged(run).items()} == expected_losses(steps)


def test_killed_and_frozen_ranks_are_recovered_in_place(place) -> None:
    run = place.submit("--step-time", "0.05", steps=60)
    supervisor = place.supervise("--until-done")
    hurt(wait_for_step(run, 12, rank=1), signal.SIGKILL)
    hurt(wait_for_step(run, 27, generation=2), signal.SIGSTOP)
    assert supervisor.wait(60) == 0
    assert judged(run) == [(1, 1, "crashed", "signal"), (1, 2, "hung", "hang")]
    crash, hang = bodies(run, ev.Judged)
    assert (crash.suspects[0], hang.suspects[0]) == (1, 0)
    assert crash.observation["attempt"] == 1
    assert len(bodies(run, ev.Recovered)) == 2
    kept = {item.generation: item.digest["en"] for item in bodies(run, ev.EvidenceKept)}
    assert "rank 0 stopped by a signal in Standin." in kept[2]
    assert [item.attempt for item in bodies(run, ev.AttemptSubmitted)] == [1]
    assert history(run).state == "completed"
    _same_as_undisturbed(run, 60)
    assert len(place.robot.texts()) >= 4
    assert history(run).alerts_failed == 0
    assert not history(run).outbox


def test_a_half_written_checkpoint_is_never_loaded_and_a_sick_robot_changes_nothing(place) -> None:
    place.robot.script(Answer(hang_s=20), Answer(status=500), Answer(body=b"?"), Answer(errcode=-1))
    run = place.submit("--step-time", "0.01", "--save-time", "0.7", steps=15)
    place.supervise("--until-done")

    def saving():
        worker = workers(run, generation=1).get(1)
        return worker if worker and worker.phase is Phase.SAVE and worker.step == 10 else None

    hurt(wait_for(saving), signal.SIGKILL)
    wait_for_state(run, "completed")
    assert read_resumes(run)[(1, 2)] == 5
    rows = json.loads(place.ciuic("checkpoints", run.run_id, "--json", "--verify").stdout)["checkpoints"]
    half = [row for row in rows if (row["step"], row["generation"]) == (10, 1)]
    assert [(row["complete"], row["valid"]) for row in half] == [(False, False)]
    assert "did not finish" in half[0]["reason"]
    _same_as_undisturbed(run, 15)


def test_a_killed_agent_leads_to_a_new_attempt(place) -> None:
    run = place.submit("--step-time", "0.05", steps=40)
    supervisor = place.supervise("--until-done")
    wait_for_step(run, 12)
    for agent in agents(run, 1):
        os.kill(agent.pid, signal.SIGKILL)
    assert supervisor.wait(60) == 0
    assert [item.attempt for item in bodies(run, ev.AttemptSubmitted)] == [1, 2]
    assert history(run).state == "completed"
    _same_as_undisturbed(run, 40)


def test_two_nodes_restart_together(place) -> None:
    run = place.submit("--step-time", "0.05", steps=30, nodes=2, ranks=1)
    supervisor = place.supervise("--until-done")
    hurt(wait_for_step(run, 7, rank=1), signal.SIGKILL)
    assert supervisor.wait(60) == 0
    assert judged(run) == [(1, 1, "crashed", "signal")]
    assert bodies(run, ev.Judged)[0].nodes == ("1",)
    assert bodies(run, ev.GenerationWent)[-1].members == ("0", "1")
    _same_as_undisturbed(run, 30)


def test_no_valid_checkpoint_where_one_was_expected_is_refused(place) -> None:
    run = place.submit("--step-time", "0.05", steps=400)
    supervisor = place.supervise("--until-done")
    wait_for(lambda: history(run).newest_checkpoint)
    worker = wait_for_step(run, 7)
    for process in (worker, workers(run)[1]):
        hurt(process, signal.SIGSTOP)  # nothing is saved any more
    for directory in directories(run):
        retire(directory)
    hurt(worker, signal.SIGKILL)
    assert supervisor.wait(60) == 0
    assert [item.verdict for item in bodies(run, ev.Judged)] == ["crashed", "refused"]
    assert history(run).state == "failed"
    assert 0 not in [step for at, step in read_resumes(run).items() if at > (1, 1)]
    assert any("拒绝" in text for text in place.robot.texts())


def test_a_failure_that_comes_back_stops_the_run(place) -> None:
    run = place.submit("--fail-at", "7", steps=20)
    assert place.supervise("--until-done").wait(60) == 0
    assert [item[2] for item in judged(run)] == ["crashed", "crashed"]
    assert history(run).state == "failed"
    wait_for(lambda: not alive(run))
    last = place.robot.texts()[-1]
    assert "stand-in was told to fail at step 7" in last


def test_a_run_with_the_watchdog_off_is_left_alone(place) -> None:
    run = place.submit("--step-time", "0.05", steps=400, watchdog=False)
    hurt(wait_for_step(run, 3), signal.SIGKILL)
    before = run.journal.read_bytes()
    assert place.supervise("--once").wait(30) == 0
    assert run.journal.read_bytes() == before
    assert not place.robot.requests
    assert "left alone" in place.log.read_text()


def test_a_torn_journal_is_repaired_and_the_run_goes_on(place) -> None:
    run = place.submit("--step-time", "0.05", steps=30)
    with run.journal.open("ab") as file:
        file.write(b'{"v":1,"seq":99,"time":1.0,"epo')
    assert place.supervise("--until-done").wait(60) == 0
    assert history(run).state == "completed"
    assert b'"seq":99,"time":1.0,"epo' not in run.journal.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "cause", "rank", "said"),
    [
        (("--absent-once", "1", "--gather-s", "2"), "rendezvous", 1, "rank 1 did not come"),
        (("--take-port-once",), "port", 0, "Address already in use"),
    ],
)
def test_ranks_that_do_not_meet_are_named_and_tried_again(place, arguments, cause, rank, said) -> None:
    run = place.submit(*arguments, steps=20, nodes=2, ranks=1)
    assert place.supervise("--until-done").wait(60) == 0
    assert history(run).state == "completed"
    verdict = bodies(run, ev.Judged)[0]
    assert (verdict.cause, verdict.suspects, verdict.nodes) == (cause, (rank,), (str(rank),))
    assert said in verdict.reason
    assert len(bodies(run, ev.Judged)) == 1
    _same_as_undisturbed(run, 20)
