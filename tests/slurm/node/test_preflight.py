"""What keeps a node out, what is only told, and checks that do not answer."""

import os
import sys
import time
from pathlib import Path

import pytest

from contract.config import parse
from slurm.agent.identity import Identity
from slurm.agent.preflight import LIMIT_S, Preflight
from slurm.agent.preflight_child import _ours, look, probe_directory
from slurm.node.preflight import Figures, Foreign, Shared, judge

GOOD = {"index": 0, "uuid": "GPU-a", "remapped": {"failed": 0, "pending": 0}, "recovery_action": "none"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (Figures(gpus_wanted=2, gpus=[GOOD]), "1 GPUs are there, the job needs 2"),
        (Figures(gpus_wanted=1, gpus_problem="NVML did not answer within 30.0 s"), "NVML did not answer"),
        (Figures(gpus_wanted=1, gpus=[{**GOOD, "recovery_action": "node reboot"}]), "asks for: node reboot"),
        (Figures(gpus_wanted=1, gpus=[{**GOOD, "remapped": {"failed": 1}}]), "must be replaced"),
        (Figures(gpus_wanted=1, gpus=[{**GOOD, "remapped": {"pending": 1}}]), "wait for a reset"),
        (Figures(gpus_wanted=1, gpus=[{"index": 0, "uuid_problem": "GPU is lost"}]), "GPU 0: GPU is lost"),
        (
            Figures(gpus_wanted=1, gpus=[GOOD], foreign=[Foreign(gpu=0, pid=7, mib=9000, name="python")]),
            "GPU 0: process 7 (python), which is not ours, holds 9000 MiB",
        ),
        (Figures(memory_free=100 << 20, memory=64 << 30), "0.10 GB of 68.72 GB memory are free"),
        (Figures(space={"/dev/shm": 1 << 20}), "/dev/shm has 0.00 GB free"),
        (Figures(shared=Shared(problem="/r: Read-only file system")), "/r: Read-only file system"),
    ],
)
def test_what_keeps_a_node_out(seen, problem):
    fitness = judge(seen)
    assert problem in " ".join(fitness.problems)
    assert not fitness.notes


@pytest.mark.quick
@pytest.mark.parametrize(
    ("seen", "note"),
    [
        (Figures(gpus_wanted=1, gpus=[{**GOOD, "ecc_uncorrected": 3}]), "3 uncorrected memory errors"),
        (Figures(gpus_wanted=1, gpus=[{**GOOD, "slowdown": ["hw-thermal"]}]), "hw-thermal"),
        (Figures(gpus_wanted=1, gpus=[GOOD], foreign=[Foreign(gpu=0, pid=7, mib=9)]), "process 7"),
        (Figures(memory_free=1 << 30, memory=64 << 30), "memory are free"),
        (Figures(space={"/tmp": 500 << 20}), "/tmp has 0.52 GB free"),
        (Figures(shared=Shared(write_s=2.0)), "takes 2.0 s"),
        (Figures(shared=Shared(write_s=0.1, offset_s=600.0)), "600.0 s behind that of the file server"),
        (Figures(shared=Shared(write_s=0.1, offset_s=-5.0)), "5.0 s before that"),
    ],
)
def test_what_is_only_told(seen, note):
    fitness = judge(seen)
    assert note in " ".join(fitness.notes)
    assert not fitness.problems


@pytest.mark.quick
def test_a_sound_node():
    sound = Figures(
        gpus_wanted=1, gpus=[GOOD], memory_free=50 << 30, memory=64 << 30, space={"/tmp": 9 << 30},
        shared=Shared(write_s=0.01, offset_s=0.02),
    )  # fmt: skip
    assert judge(sound).problems == judge(sound).notes == ()


@pytest.mark.quick
def test_the_shared_directory_is_tried(tmp_path):
    found = probe_directory(tmp_path, "n1")
    assert (found.problem, list(tmp_path.iterdir())) == ("", [])
    assert abs(found.offset_s) < 5.0
    skewed = probe_directory(tmp_path, "n1", clock=lambda: time.time() - 600)
    assert 595 < skewed.offset_s < 605
    (tmp_path / ".preflight-n1").mkdir()
    assert probe_directory(tmp_path, "n1").problem.endswith("Is a directory")
    assert "No such file" in probe_directory(tmp_path / "gone", "n1").problem


@pytest.mark.quick
def test_gpus_that_the_job_may_not_use_are_left_alone(tmp_path):
    both = [GOOD, {**GOOD, "index": 1, "uuid": "GPU-b"}]
    assert [gpu["index"] for gpu in _ours(both, "GPU-b")] == [1]
    assert [gpu["index"] for gpu in _ours(both, "0")] == [0]
    assert len(_ours(both, "-")) == 2
    if not Path("/dev/nvidia0").exists():
        assert "NVML" in judge(look(tmp_path, "n1", 1, "-")).problems[0]


def agents(tmp_path, **node):
    config = parse(
        {"run": {"name": "a", "steps": 1}, "job": {"command": ["x"]}, "node": node}, source="t", bases=()
    )
    me = Identity(node="n1", index=0, job_id="1", restart=0, host="h", local=False)
    told: list[str] = []
    return Preflight(tmp_path, config, me, os.environ, told.append), told


def until_over(one):
    begun = time.monotonic()
    while not one.over:
        one.look(time.monotonic())
        assert time.monotonic() < begun + 60
        time.sleep(0.01)


def test_the_checks_run_beside_the_agent(tmp_path):
    one, _ = agents(tmp_path)
    until_over(one)
    assert one.unfit == ""
    assert one.health["write_ms"] > 0
    (tmp_path / ".preflight-n1").mkdir()
    one, _ = agents(tmp_path)
    until_over(one)
    assert "cannot be used" in one.unfit
    assert agents(tmp_path, preflight=False)[0].over


def test_checks_that_hang_are_an_answer_and_our_own_fault_is_none(tmp_path):
    one, _ = agents(tmp_path)
    one._command = [sys.executable, "-c", "import time; time.sleep(600)"]
    one.look(0.0)
    one.look(LIMIT_S - 1)
    assert not one.over
    one.look(LIMIT_S + 1)
    assert one.over
    assert "did not end within 90 s" in one.unfit
    one, told = agents(tmp_path)
    one._command = [sys.executable, "-c", "raise SystemExit(3)"]
    until_over(one)
    assert one.unfit == ""
    assert "not held up" in told[0]
