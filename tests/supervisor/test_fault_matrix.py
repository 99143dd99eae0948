"""Each kind of fault in real processes: the verdict's class, rank and phase, and evidence with the guilty frame."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from contract import events as ev
from contract.evidence import read_evidence
from contract.metrics import merged
from slurm.create import first_attempt
from supervisor.demo.robot import Robot
from tests.standin import expected_losses
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import Place, bodies, history, wait_for_step, workers


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def frames(run, generation: int, rank: int) -> list[str]:
    found = read_evidence(run.attempt(1).evidence(generation), "0")
    assert found is not None
    [worker] = [item for item in found.workers if item.rank == rank]
    return [frame.name for frame in worker.threads[0].frames]


def test_hangs_are_named_by_rank_and_phase_and_show_the_guilty_frame(place) -> None:
    run = place.submit("--faults", "loader,lock,gil", "--step-time", "0.02", steps=40)
    assert place.supervise("--until-done").wait(150) == 0
    assert history(run).state == "completed"
    seen = [
        (item.verdict, item.cause, item.suspects, item.limits["phase"]) for item in bodies(run, ev.Judged)
    ]
    assert seen == [
        ("hung", "hang", (1,), "data"),
        ("hung", "hang", (1,), "forward"),
        ("hung", "hang", (1,), "forward"),
    ]
    asleep, locked, looping = bodies(run, ev.Judged)
    calm = max(asleep.limits["busy"], locked.limits["busy"])
    assert looping.limits["busy"] > calm, "a loop in C uses the CPU, however little of it there is"
    guilty = {1: "next_batch", 2: "update_shared_state", 3: "multiply_matrices"}
    kept = {item.generation: item for item in bodies(run, ev.EvidenceKept)}
    for generation, function in guilty.items():
        assert function in frames(run, generation, rank=1)
        assert f"rank 1 in {function} (standin.py:" in kept[generation].digest["en"]
        assert "rank 0 in Group._receive" in kept[generation].digest["en"]
        assert kept[generation].path == str(run.attempt(1).evidence(generation))
    story = place.ciuic("explain", run.run_id, "--lang", "en").stdout
    assert all(function in story for function in guilty.values())
    assert any("rank 1 在 multiply_matrices" in text for text in place.robot.texts())
    assert {step: row["loss"] for step, row in merged(run).items()} == expected_losses(40)


def test_a_dump_on_demand_ends_nothing_with_a_supervisor_and_without(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000)
    wait_for_step(run, 3)
    alone = place.ciuic("dump", run.run_id)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert "no supervisor is running" in alone.stderr
    place.supervise()
    wait_for(lambda: bodies(run, ev.SupervisorStarted)[1:], what="the supervisor")
    before = workers(run)
    helped = place.ciuic("dump", run.run_id)
    assert helped.returncode == 0, helped.stdout + helped.stderr
    for done in (alone, helped):
        first, groups = done.stdout.splitlines()[:2]
        directory = Path(first.partition(": ")[2])
        assert directory.is_relative_to(run.attempt(1).evidence(1))
        assert "Standin" in (directory / "0.txt").read_text()
        assert "rank" in groups
    assert [item.pid for item in workers(run).values()] == [item.pid for item in before.values()]
    assert not bodies(run, ev.Judged)
    cancelled = place.ciuic("cancel", run.run_id)
    assert cancelled.returncode == 0
    refused = place.ciuic("dump", run.run_id)
    assert (refused.returncode, "nothing to dump" in refused.stdout) == (1, True)


def test_a_supervisor_that_was_frozen_judges_nothing_by_old_eyes(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000)
    supervisor = place.supervise()
    wait_for_step(run, 5)
    os.kill(supervisor.pid, signal.SIGSTOP)
    frozen = time.monotonic()
    before = workers(run)[0].step
    wait_for(
        lambda: time.monotonic() - frozen > 6.0 and workers(run)[0].step > before, what="the time to pass"
    )
    os.kill(supervisor.pid, signal.SIGCONT)
    seen = history(run).newest_checkpoint
    wait_for(lambda: history(run).newest_checkpoint != seen, what="the supervisor's next look")
    assert not bodies(run, ev.Judged)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted = []

    def mount(directory: Path) -> Path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], check=True)
        mounted.append(directory)
        return directory

    yield mount
    for directory in mounted:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_full_disk_during_a_save_is_named(place, small_disk) -> None:
    run, config = place.create("--step-time", "0.05", steps=40)
    small_disk(run.checkpoints)
    assert not first_attempt(run, config).problem
    place.supervise("--until-done")
    wait_for_step(run, 6)
    ballast = run.checkpoints / "ballast"
    with pytest.raises(OSError, match="No space left"):
        fill(ballast)
    [verdict] = wait_for(lambda: bodies(run, ev.Judged), what="the verdict")[:1]
    ballast.unlink()
    assert (verdict.verdict, verdict.cause) == ("crashed", "disk-full")
    assert "save" in verdict.reason
    wait_for(lambda: history(run).state == "completed", seconds=60, what="the end")


@pytest.fixture
def memory_group():
    """A memory control group of 64 MiB, of either version; skips where none can be made."""
    for parent, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = parent / f"ciuic-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(64 << 20))
            break
        group.rmdir()
    else:
        pytest.skip("no memory control group can be made here (not root, or the controller is not delegated)")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text().strip(), what="the group's processes to end")
    group.rmdir()


def test_a_kill_by_the_kernel_for_want_of_memory_is_named(place, memory_group) -> None:
    run = place.submit("--faults", "memory", "--group", str(memory_group), "--step-time", "0.02", steps=20)
    assert place.supervise("--until-done").wait(60) == 0
    [verdict] = bodies(run, ev.Judged)
    assert (verdict.verdict, verdict.cause, verdict.suspects) == ("crashed", "host-oom", (1,))
    assert "out of memory" in verdict.reason
    assert "forward" in verdict.reason
    assert history(run).state == "completed"
