"""Many runs under one supervisor: one that does not answer delays no other, and a tick costs what has changed."""

import os
import signal
from pathlib import Path

import pytest

from contract import events as ev
from contract.control import Control, write_control
from contract.event_lines import encode
from contract.states import ControlPhase
from supervisor.adapters.leadership import take
from supervisor.daemon import make_world
from supervisor.demo.robot import Robot
from supervisor.lanes import Lanes, Turn
from supervisor.tick import Supervision
from tests.supervisor.conftest import bare_run, config_of, wait_for
from tests.supervisor.place import Place, hurt, wait_for_state, wait_for_step

BEGUN = (
    ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"),
    ev.AttemptSubmitted(attempt=1, job_id="7"),
)


def written(run, *bodies: ev.Body) -> None:
    """Without the fsync of each event that a supervisor owes: a hundred thousand would take minutes."""
    seq = len(run.journal.read_bytes().splitlines())
    lines = (
        encode(ev.Event(seq=seq + number, time=1.0, epoch=0, body=body))
        for number, body in enumerate(bodies, 1)
    )
    with run.journal.open("ab") as file:
        file.writelines(lines)


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def test_a_run_whose_files_do_not_answer_delays_no_other(place) -> None:
    """A pipe that nobody writes to stands for a file on a server that has gone away: whoever opens it waits."""
    stuck = bare_run(place.root, "stuck-1", config_of(supervisor={"tick_s": 0.05}))
    written(stuck, *BEGUN)
    os.mkfifo(stuck.control)
    run = place.submit("--step-time", "0.05", steps=40)
    process = place.supervise()
    hurt(wait_for_step(run, 8), signal.SIGKILL)
    wait_for_state(run, "completed")
    wait_for(lambda: "stuck-1: its round has not come back" in place.log.read_text())
    writer = os.open(stuck.control, os.O_WRONLY)
    stuck.control.unlink()
    os.close(writer)
    wait_for(lambda: "stuck-1: its round came back after" in place.log.read_text())
    stuck.control.unlink(missing_ok=True)
    os.mkfifo(stuck.control)  # and now it hangs while the supervisor is told to end
    wait_for(lambda: place.log.read_text().count("its round has not come back") == 2)
    process.terminate()
    assert process.wait(20) == 0


def test_a_round_that_is_still_out_is_not_done(place) -> None:
    """A submission on a busy machine takes longer than a round: whoever waits until all is done waits for it."""
    stuck = bare_run(place.root, "stuck-1", config_of(supervisor={"tick_s": 0.05}))
    written(stuck, *BEGUN)
    os.mkfifo(stuck.control)
    process = place.supervise("--until-done")
    wait_for(lambda: "stuck-1: its round has not come back" in place.log.read_text())
    assert process.poll() is None


def test_a_late_round_waits_for_its_turn_and_its_failure_is_not_lost() -> None:
    turn, order = Turn(), []
    lanes = Lanes(turn, patience_s=0.05)
    reading, writing = os.pipe()

    def hangs() -> None:
        os.read(reading, 1)
        turn.regain()
        order.append("late")
        raise OSError("the server is back and the file is not")

    lanes.run("a", hangs)
    lanes.run("a", lambda: order.append("never: its last round is still out"))
    assert lanes.late == {"a"}

    def other() -> None:
        os.write(writing, b"x")
        assert not order, "it went on though the turn is ours"
        order.append("other")

    lanes.run("b", other)
    wait_for(lambda: "late" in order)
    wait_for(lambda: not lanes.late)
    with pytest.raises(OSError, match="the server is back"):
        lanes.is_late("a")
    assert order == ["other", "late"]
    lanes.run("a", lambda: order.append("again"))
    assert order[-1] == "again"
    lanes.close()


def bytes_read() -> int:
    """What this process has read so far, as the kernel counts it."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def test_a_tick_costs_what_changed_and_not_what_was(root) -> None:
    """A journal of 100,000 events and logs of gigabytes: read once, then what is new. Counted in bytes."""
    run = bare_run(root, "old-1", config_of(job={"executor": "local"}, supervisor={"tick_s": 0.05}))
    seen = (ev.CheckpointSeen(step=step, attempt=1, generation=1) for step in range(100_000))
    written(run, *BEGUN, *seen)
    size = run.journal.stat().st_size
    assert size > 8_000_000
    write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    log = run.attempt(1).log("n1")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"2026-01-01T00:00:00.000Z g0001 r0 | step 1: loss 2.0\n" * 40_000)
    with log.open("ab") as file:
        file.truncate(3 << 30)
    leadership = take(root)
    world = make_world(leadership, print)
    supervision = Supervision(run, world)
    try:
        supervision.tick()
        assert supervision.active
        costs = []
        for number in range(20):
            before = bytes_read()
            supervision.tick()
            costs.append(bytes_read() - before)
            with log.open("ab") as file:
                file.write(b"2026-01-01T00:00:00.000Z g0001 r0 | step %d: loss 2.0\n" % number)
        assert sorted(costs)[10] < 64_000, costs
        assert max(costs[1:]) < 1_000_000, costs
    finally:
        supervision.release()
        world.watcher.close()
        leadership.release()
