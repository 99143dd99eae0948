"""The two ways in which progress travels: the shared page and the beat file."""

import math
import subprocess
import sys
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
