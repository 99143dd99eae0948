"""A worker as its agent sees it: where its time goes."""

import pytest

from contract.states import Phase
from slurm.agent.worker import new_worker


class NoOutput:
    last_lines = ()

    def drain(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def worker(tmp_path):
    made = new_worker(tmp_path / "page", NoOutput(), rank=0, local_rank=0, now=0.0)
    made.page.mark(step=0, phase=Phase.DATA)
    yield made
    made.close()


def test_the_time_of_a_step_is_the_mean_of_the_last_minute(worker, monkeypatch) -> None:
    clock = [1_000_000_000]
    monkeypatch.setattr("contract.page.monotonic_ns", lambda: clock[0])

    def step(number: int, forward_s: float) -> None:
        worker.page.mark(step=number - 1, phase=Phase.FORWARD)
        clock[0] += int(forward_s * 1e9)
        worker.page.mark(step=number, phase=Phase.DATA)
        worker.look(clock[0] / 1e9)

    step(1, 5.0)
    assert worker.spent() == {}  # the first step of a generation is not usual
    for number in range(2, 62):
        step(number, 1.0)
    assert worker.beat(99.0).spent["forward"] == pytest.approx(1.0, abs=0.001)
    for number in range(62, 132):
        step(number, 3.0)
    assert worker.spent()["forward"] == pytest.approx(3.0, abs=0.001)
    assert worker.spent()["backward"] == 0.0
    assert len(worker.marks) < 16
