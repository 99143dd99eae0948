"""The two ways in which progress travels: the shared page and the beat file."""

import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.beat import SIZE, Beat, BeatFile, WorkerBeat, decode, encode, read_beat
from contract.page import NullPage, WorkerPage
from contract.states import AgentPhase, Phase


def test_a_mark_is_seen_through_another_mapping(tmp_path: Path) -> None:
    agent = WorkerPage.create(tmp_path / "page", rank=3)
    worker = WorkerPage(tmp_path / "page")
    worker.mark(step=7, micro_step=2, phase=Phase.BACKWARD)
    worker.report(loss=1.5, tokens=4096)
    seen = agent.read()
    assert (seen.rank, seen.step, seen.micro_step, seen.phase) == (3, 7, 2, Phase.BACKWARD)
    assert (seen.loss, seen.tokens, seen.counter) == (1.5, 4096, 1)
    assert seen.exception is None


def test_another_program_marks_with_three_lines(tmp_path: Path) -> None:
    page = WorkerPage.create(tmp_path / "page", rank=0)
    program = (
        "from contract.page import page_from_environment\n"
        "from contract.states import Phase\n"
        "page_from_environment().mark(step=5, phase=Phase.SAVE)\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"CIUIC_PAGE": str(tmp_path / "page")},
        check=True,
        timeout=60,
    )
    assert (page.read().step, page.read().phase) == (5, Phase.SAVE)
    assert page.read().pid > 0


@pytest.mark.parametrize("text", ["boom", "错误" * 5000, '"\\\n\x00' * 2000, "\udcff" * 900, ""])
def test_an_exception_fits_and_keeps_its_end(tmp_path: Path, text: str) -> None:
    page = WorkerPage.create(tmp_path / "page", rank=0)
    page.exception("ValueError", text)
    seen = page.read().exception
    assert seen is not None
    assert seen["type"] == "ValueError"
    assert text.encode(errors="replace").decode().endswith(seen["text"])


def test_orders_reach_the_worker_and_their_number_moves(tmp_path: Path) -> None:
    agent = WorkerPage.create(tmp_path / "page", rank=0)
    worker = WorkerPage(tmp_path / "page")
    before = worker.orders_sequence()
    agent.give_orders({"hot": {"log_level": "debug"}, "orders": []})
    assert worker.orders_sequence() != before
    assert worker.orders()[1]["hot"] == {"log_level": "debug"}


def test_without_an_agent_nothing_happens() -> None:
    page = NullPage()
    page.mark(step=1, phase=Phase.DATA)
    page.exception("X", "y")
    assert page.orders()[1] == {}


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(bytes(4096))
    with pytest.raises(ValueError, match="not a worker page"):
        WorkerPage(tmp_path / "page")


def _beat(**changes: object) -> Beat:
    base: dict[str, object] = {
        "node": "n1",
        "attempt": 1,
        "generation": 2,
        "sequence": 9,
        "phase": AgentPhase.RUNNING,
        "workers": (WorkerBeat(rank=0, local_rank=0, pid=12, step=3, phase=Phase.SAVE, loss=2.0),),
        "notes": ("显存检查已跳过",),
        "usual": {"save": 1.5},
    }
    return Beat(**(base | changes))  # type: ignore[arg-type]


def test_a_beat_survives_the_round_trip(tmp_path: Path) -> None:
    file = BeatFile(tmp_path / "beats" / "n1")
    file.write(_beat())
    assert read_beat(tmp_path / "beats" / "n1") == _beat()
    assert (tmp_path / "beats" / "n1").stat().st_size == SIZE
    file.close()
    assert read_beat(tmp_path / "beats" / "other") is None


def test_a_loss_that_is_not_finite_still_makes_a_beat() -> None:
    worker = WorkerBeat(rank=0, local_rank=0, pid=1, loss=math.inf)
    found = decode(encode(_beat(workers=(worker,))))
    assert found is not None
    assert math.isnan(found.workers[0].loss)


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_a_torn_or_damaged_beat_is_none_or_the_same(place: int, change: int) -> None:
    whole = encode(_beat())
    damaged = bytearray(whole)
    damaged[place] ^= change
    assert decode(bytes(damaged)) in (None, _beat())
    assert decode(whole[:place]) in (None, _beat())


def test_thirty_two_workers_fit_and_too_long_notes_give_way() -> None:
    workers = tuple(
        WorkerBeat(
            rank=100_000 + index, local_rank=index, pid=4_000_000, step=10**9, tokens=10**15, idle_s=12345.678
        )
        for index in range(32)
    )
    found = decode(encode(_beat(workers=workers, notes=("x" * 9000,))))
    assert found is not None
    assert found.workers == workers or all(math.isnan(worker.loss) for worker in found.workers)
    assert found.notes == ("beat: health and notes did not fit",)
    failing = (replace(workers[0], save_error="x文" * 90), *workers[1:])
    told = decode(encode(_beat(workers=failing)))
    assert told is not None
    assert told.workers[0].save_error.startswith("x?" * 20)


def test_a_page_tells_where_the_time_went(tmp_path: Path) -> None:
    page = WorkerPage.create(tmp_path / "page", rank=0)
    page.started()
    for step in range(3):
        page.mark(step=step, phase=Phase.DATA)
        time.sleep(0.02)
        page.waited(5_000_000)
        page.mark(step=step, phase=Phase.FORWARD)
        page.enter(Phase.SAVE)
        time.sleep(0.01)
    page.mark(step=3, phase=Phase.DATA)
    spent = page.read().spent
    assert set(spent) == {"data", "forward", "backward", "optimizer", "wait"}
    assert 0.045 <= spent["data"] < 1.0
    assert spent["wait"] == pytest.approx(0.015)
    assert spent["forward"] < 0.01
    assert spent["backward"] == 0.0


def test_progress_fits_a_beat_when_times_do_not() -> None:
    spent = {"data": 0.12345, "forward": 0.12345, "backward": 0.12345, "optimizer": 0.12345, "wait": 0.12345}
    workers = tuple(
        WorkerBeat(rank=rank, local_rank=rank, pid=rank, step=9, spent=spent) for rank in range(28)
    )
    seen = decode(encode(beat_of(workers)))
    assert seen is not None
    assert [worker.step for worker in seen.workers] == [9] * 28
    few = decode(encode(beat_of(workers[:8])))
    assert few is not None
    assert few.workers[0].spent == spent


def beat_of(workers: tuple[WorkerBeat, ...]) -> Beat:
    return Beat(node="n", attempt=1, generation=1, sequence=1, phase=AgentPhase.RUNNING, workers=workers)


def test_every_region_of_the_page_has_a_place_of_its_own(tmp_path: Path) -> None:
    """All that a worker and its agent write at once is read as it was written, the longest texts included."""
    page = WorkerPage.create(tmp_path / "page", rank=3)
    for phase in Phase:
        page.mark(step=7, phase=phase, micro_step=2)
    page.waited(5)
    page.report(loss=1.5, tokens=9)
    page.report_save("文" * 500)
    page.exception("RuntimeError", "x" * 3000)
    page.give_orders({"hot": {}, "orders": []})
    page.give_device({"utilisation": 5})
    for phase in Phase:
        page.mark(step=8, phase=phase)
    found = page.read()
    assert (found.rank, found.step, found.tokens, found.loss) == (3, 8, 9, 1.5)
    assert set(found.save_error) == {"文"}
    assert found.exception is not None
    assert found.exception["type"] == "RuntimeError"
    assert page.orders()[1] == {"hot": {}, "orders": []}
    assert page.device() == {"utilisation": 5}
    page.report_save("")
    assert page.read().save_error == ""
