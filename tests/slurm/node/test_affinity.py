"""Which CPUs are beside which GPU, and that a worker starts on them."""

import os
import sys

import pytest

from contract.config import parse
from slurm.agent.launch import cpus_of
from slurm.node.affinity import VARIABLE, beside_gpus, of_workers, parsed, written
from tests.slurm.node.trees import Builder, described

ALL = range(64)
SIDES = [range(32), range(32), range(32, 64), range(32, 64)]


@pytest.mark.quick
def test_the_notation_of_the_kernel():
    assert parsed("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert written({11, 10, 8, 0, 1, 2, 3}) == "0-3,8,10-11"
    for none in ("", "x", "1-", "0-3;rm"):
        assert parsed(none) == frozenset()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environment", "allowed", "found"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, ALL, ("0-31", "0-31", "32-63", "32-63")),
        ({"CUDA_VISIBLE_DEVICES": "3,0"}, ALL, ("32-63", "0-31", "", "")),
        # A control group counts its two GPUs anew; Slurm tells which ones they are.
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, ALL, ("32-63", "32-63", "", "")),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, range(8), ("", "", "", "")),  # the job is on one side only
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, range(24, 40), ("24-31", "24-31", "32-39", "32-39")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0a,GPU-0b"}, ALL, ("", "", "", "")),
        ({"CUDA_VISIBLE_DEVICES": "7"}, ALL, ("", "", "", "")),
    ],
)
def test_where_workers_run(environment, allowed, found):
    assert of_workers(SIDES, environment, 4, allowed) == found


@pytest.mark.quick
def test_the_machine_tells(tmp_path):
    machine = described("dgx-h100")
    Builder(tmp_path, machine)
    gpus = [path.parent for path in sorted(tmp_path.rglob("vendor")) if path.read_text().strip() == "0x10de"]
    for number, gpu in enumerate(gpus):
        (gpu / "local_cpulist").write_text("0-55\n" if 2 * number < len(gpus) else "56-111\n")
    found = beside_gpus(tmp_path)
    assert found == [frozenset(range(56))] * 4 + [frozenset(range(56, 112))] * 4


@pytest.mark.quick
def test_nothing_is_bound_without_gpus_or_when_told_not_to():
    for sections in ({}, {"job": {"gpus_per_node": 1}, "node": {"bind_cpus": False}}):
        base = {"run": {"name": "t", "steps": 1}, "job": {"command": ["x"]}}
        merged = {**base, **{name: {**base.get(name, {}), **its} for name, its in sections.items()}}
        assert cpus_of(parse(merged, source="t", bases=()), {}) == ()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU leaves no choice")
def test_a_worker_starts_there(tmp_path):
    """The child of the starter, as an agent orders it."""
    from slurm.agent.warm import Exited, Ready, WarmProcess
    from tests.slurm.conftest import wait_for

    cpu, seen = max(os.sched_getaffinity(0)), tmp_path / "seen"
    code = f"import os; open({str(seen)!r}, 'w').write(str(os.sched_getaffinity(0)))"
    warm = WarmProcess(os.environ, "")
    events = []

    def heard(kind):
        events.extend(warm.events())
        return any(isinstance(event, kind) for event in events)

    try:
        wait_for(lambda: heard(Ready), what="the starter")
        with open(os.devnull, "wb") as nothing:
            warm.spawn(
                0, command=[sys.executable, "-c", code], entry="", output=nothing.fileno(), master=None,
                environment={**os.environ, VARIABLE: str(cpu)},
            )  # fmt: skip
        wait_for(lambda: heard(Exited), what="its end")
    finally:
        warm.close()
        os.waitpid(warm.pid, 0)
    assert seen.read_text() == str({cpu})
