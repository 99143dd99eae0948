"""What an agent keeps of processes that are stuck: real ones, and torch's dumps in their documented shape."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from contract.control import Order, OrderKind
from contract.evidence import NCCL, read_evidence
from contract.states import ControlPhase
from slurm.agent import collect, devices, recorder, stacks
from tests.slurm.conftest import alive, config_of, wait_for

PAGE = """
import os, sys
from pathlib import Path
os.environ["CIUIC_PAGE"] = sys.argv[1]
sys.path.insert(0, {root!r})
from trainer.evidence import offer_evidence
offer_evidence()
"""
WAITING = """
import threading
lock = threading.Lock()
lock.acquire()
def next_batch():
    print("there", flush=True)
    lock.acquire()
next_batch()
"""
SPINNING = """
def spin():
    print("there", flush=True)
    {spin}
spin()
"""
# `pow` of two such numbers works in C for hours and never lets go of the interpreter.
POWER = "pow(3, 10 ** 9)"
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def stuck(tmp_path):
    """Start a program that says when it is stuck."""
    begun = []

    def start(program: str) -> subprocess.Popen:
        path = tmp_path / "program.py"
        path.write_text(program)
        process = subprocess.Popen(
            [sys.executable, str(path), str(tmp_path / "page")], stdout=subprocess.PIPE
        )
        begun.append(process)
        assert process.stdout.readline() == b"there\n"
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()


def look(process, tmp_path, **changes) -> collect.NodeEvidence:
    subject = collect.Subject(
        rank=3, pid=process.pid, page=str(tmp_path / "page"), phase="data", step=7, lines=("last",)
    )
    task = collect.Task(
        directory=str(tmp_path), node="n0", attempt=1, generation=2, why="test", agent=os.getpid(), began=time.monotonic(), seconds=6.0,
        deep=True, gpus=False, workers=(subject,),
    )  # fmt: skip
    index, text = collect.collect(replace(task, **changes))
    assert "rank 3" in text
    return index


def frames(index, thread: int = 0) -> list[str]:
    return [f"{frame.name} {frame.where}" for frame in index.workers[0].threads[thread].frames]


def test_a_deadlock_in_a_lock_shows_its_frame(stuck, tmp_path):
    index = look(stuck(WAITING), tmp_path)
    assert frames(index)[0] == "next_batch program.py:7"
    assert index.workers[0].source == "py-spy"
    assert index.workers[0].flight == "this program offers none"
    assert not index.problems


def test_a_stopped_process_shows_its_frame(stuck, tmp_path):
    process = stuck(WAITING)
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: collect.os_state(process.pid) == "T", what="the stop")
    index = look(process, tmp_path)
    assert frames(index)[0].startswith("next_batch program.py:")
    assert (index.workers[0].os_state, index.workers[0].flight) == ("T", "the process is stopped")


def test_c_code_that_holds_the_interpreter_shows_its_frame_to_both(stuck, tmp_path, monkeypatch):
    process = stuck(PAGE.format(root=ROOT) + SPINNING.format(spin=POWER))
    assert frames(look(process, tmp_path))[0].startswith("spin program.py:")
    monkeypatch.setattr(stacks, "py_spy", lambda: "")
    index = look(process, tmp_path)
    assert frames(index)[0].startswith("spin program.py:")
    assert (index.workers[0].source, index.workers[0].problem) == ("faulthandler", "py-spy is not installed")
    assert "no answer within" in index.workers[0].flight


def test_without_any_way_in_that_is_said(stuck, tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "py_spy", lambda: "")
    index = look(stuck(WAITING), tmp_path)
    assert index.workers[0].threads == ()
    assert index.problems == (
        "rank 3: py-spy is not installed; faulthandler: it does not listen for the signal",
    )


def test_the_main_thread_of_faulthandler_comes_first(stuck, tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "py_spy", lambda: "")
    index = look(stuck(PAGE.format(root=ROOT) + WAITING), tmp_path)
    assert frames(index)[0].startswith("next_batch program.py:")
    assert any("_serve" in line for line in frames(index, 1))


def test_a_process_that_has_ended_is_said(stuck, tmp_path):
    process = stuck(WAITING)
    process.kill()
    process.wait()
    assert look(process, tmp_path).workers[0].problem == "it has ended"


# torch's dumps


def entry(seq: int, name: str = "nccl:all_reduce", **changes) -> dict:
    base = {
        "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "record_id": seq, "pg_id": 0,
        "op_id": seq, "profiling_name": name, "input_sizes": [[3, 4]], "output_sizes": [[3, 4]],
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "time_created_ns": 1, "timeout_ms": 600_000,
        "state": "completed", "retired": True, "is_p2p": False,
    }  # fmt: skip
    return base | changes


DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [entry(number) for number in range(1, 20)]
    + [entry(20, state="started", retired=False), entry(1, "nccl:send 0->1", is_p2p=True)],
}


@pytest.mark.parametrize(
    ("dump", "expected"),
    [
        (DUMP, [(19, "all_reduce", "3×4→3×4", True), (20, "all_reduce", "3×4→3×4", False)]),
        # Gloo never writes a state but "scheduled": that it is done shows in `retired` alone.
        ({"entries": [entry(1, "gloo:barrier", state="scheduled", input_sizes=[], output_sizes=[])]}, [(1, "barrier", "→", True)]),
        ({"entries": [entry(1, "gloo:barrier", state="scheduled", retired=False)]}, [(1, "barrier", "3×4→3×4", False)]),
        ({"entries": [], "pg_config": {}}, []),
    ],
)  # fmt: skip
def test_the_newest_entries_of_a_dump_are_kept(dump, expected):
    found = recorder.last_collectives(dump)
    assert [(item.seq, item.name, item.sizes, item.done) for item in found][-2:] == expected
    assert len(found) <= recorder.KEPT


def test_the_members_of_a_group_are_known_where_torch_tells():
    assert recorder.last_collectives(DUMP)[0].ranks == (0, 1)
    assert recorder.last_collectives({"entries": [entry(1)]})[0].ranks == ()


def test_nccls_own_thread_is_asked_by_its_pipe(tmp_path):
    """As torch's heartbeat monitor does: it waits at a FIFO and writes a pickle."""
    page = tmp_path / "page"
    pipe = Path(f"{page}{NCCL}3.pipe")
    os.mkfifo(pipe)

    def monitor() -> None:
        with pipe.open("rb") as file:
            file.read(1)
        Path(f"{page}{NCCL}3").write_bytes(pickle.dumps(DUMP))

    thread = threading.Thread(target=monitor)
    thread.start()

    def asked():
        try:
            return recorder.ask(page, 3, seconds=5.0)
        except recorder.RecorderError:  # the monitor has not opened its end yet
            return None

    assert wait_for(asked, what="the dump")["version"] == "2.10"
    thread.join()


def test_a_pickle_that_would_run_code_is_not_read(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch /tmp/never",))

    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps(Evil()))
    assert recorder._read(path) is None


# devices


class FakeNvml:
    """Two devices: one healthy, one that asks for a reset and knows no ECC."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = NVML_SUCCESS = 0
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 200

    def __getattr__(self, name):
        answers = {
            "nvmlInit": None, "nvmlDeviceGetCount": 2, "nvmlDeviceGetUUID": "GPU-1", "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetRemappedRows": (0, 1, 1, 0), "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
            "nvmlDeviceGetComputeRunningProcesses": [type("P", (), {"pid": 7, "usedGpuMemory": 3 << 30})],
        }  # fmt: skip
        if name == "nvmlDeviceGetHandleByIndex":
            return lambda number: number
        if name == "nvmlDeviceGetUtilizationRates":
            return lambda _: type("Rates", (), {"gpu": 100})
        if name == "nvmlDeviceGetMemoryInfo":
            return lambda _: type("Memory", (), {"used": 5 << 30, "total": 80 << 30})
        if name == "nvmlDeviceGetTotalEccErrors":
            return self._ecc
        if name == "nvmlDeviceGetFieldValues":
            return lambda handle, _: [
                type("V", (), {"nvmlReturn": 0, "value": type("U", (), {"uiVal": handle})})
            ]
        return lambda *_: answers[name]

    def _ecc(self, handle, *_):
        if handle == 1:
            raise self.NVMLError("Not Supported")
        return 0


def test_figures_of_devices_name_what_is_wrong_with_them():
    first, second = devices.figures(FakeNvml())
    assert (first["recovery_action"], second["recovery_action"]) == ("none", "gpu reset")
    assert first["ecc_uncorrected"] == 0
    assert "ecc_uncorrected" not in second
    assert first["remapped"] == {"corrected": 0, "uncorrected": 1, "pending": 1, "failed": 0}
    assert first["slowdown"] == ["hw-thermal"]
    assert first["processes"] == [{"pid": 7, "mib": 3072}]
    assert (first["busy_percent"], first["memory_used_mib"]) == (100, 5120)


def test_every_name_that_we_call_is_one_of_nvml():
    names = set(devices.figures.__code__.co_names) | set(devices._device.__code__.co_names)
    for constant in devices._device.__code__.co_consts:
        names |= set(getattr(constant, "co_names", ()))
    names |= set(devices._action.__code__.co_names)
    missing = {name for name in names if name.lower().startswith("nvml") and not hasattr(pynvml, name)} - {
        "nvmlReturn"
    }
    assert not missing


def test_a_driver_that_hangs_or_is_not_there_is_said_in_time(monkeypatch):
    if not Path("/dev/nvidiactl").exists():
        with pytest.raises(devices.DevicesError, match="NVML"):
            devices.ask(seconds=10.0)
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    popen = subprocess.Popen
    monkeypatch.setattr(devices.subprocess, "Popen", lambda _, **rest: popen(slow, **rest))
    began = time.monotonic()
    with pytest.raises(devices.DevicesError, match=r"did not answer within 0\.3 s"):
        devices.ask(seconds=0.3)
    assert time.monotonic() - began < 5


# the agent


def evidence_of(trial, generation: int = 1, order: str = ""):
    return read_evidence(trial.run.attempt(1).evidence(generation) / order, "0")


def test_evidence_is_kept_before_the_workers_are_ended(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, job={"ranks_per_node": 2}))
    pid = trial.hit(1, 7, signal.SIGSTOP)
    wait_for(lambda: trial.worker(1).idle_s > 0.5, what="the standstill")
    trial.order(ControlPhase.GO, orders=(Order(id="evidence-g0001", kind=OrderKind.EVIDENCE),))
    trial.in_place(2, trial.members())
    found = evidence_of(trial)
    states = {worker.rank: (worker.os_state, worker.threads[0].frames[0].name) for worker in found.workers}
    assert states[1][0] == "T"
    assert "_receive" in json.dumps([frame.name for frame in found.workers[0].threads[0].frames])
    assert not alive(pid)
    assert found.took_s < 3
    assert "Standin" in (trial.run.attempt(1).evidence(1) / "0.txt").read_text()
    trial.end()
    assert trial.beat("0").orders_done == ("evidence-g0001",)


def test_a_dump_leaves_the_workers_alone(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 60}, job={"ranks_per_node": 2}))
    pid = trial.at_step(1, 3).pid
    trial.order(ControlPhase.PREPARE, orders=(Order(id="o-1", kind=OrderKind.DUMP),))
    wait_for(lambda: "o-1" in trial.beat("0").orders_done, what="the order in the beat")
    assert [worker.pid for worker in evidence_of(trial, order="o-1").workers][1] == pid
    trial.end()
    assert {item.code for item in trial.exits().values()} == {0}
    assert trial.losses()


def test_a_crash_shows_what_the_others_did(start):
    trial = start(config_of("--step-time", "0.05", run={"steps": 500}, job={"ranks_per_node": 3}))
    os.kill(trial.at_step(2, 3).pid, signal.SIGSTOP)  # it cannot end by itself, and waits for nobody
    trial.hit(1, 3, signal.SIGKILL)
    found = wait_for(lambda: evidence_of(trial), what=f"evidence\n{trial.log()}")
    assert found.why == "a worker failed"
    assert {worker.rank: worker.os_state for worker in found.workers}[2] == "T"
    trial.order(ControlPhase.LEAVE)
    trial.end()


def test_a_collector_that_is_stuck_delays_nothing_for_long(start, monkeypatch):
    """The directory cannot be written: its name is taken by a FIFO-like obstacle, here a file."""
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, job={"ranks_per_node": 2}))
    place = trial.run.attempt(1).evidence(1)
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    trial.hit(1, 7, signal.SIGSTOP)
    wait_for(lambda: trial.worker(1).idle_s > 0.3, what="the standstill")
    began = time.monotonic()
    trial.order(ControlPhase.GO, orders=(Order(id="evidence-g0001", kind=OrderKind.EVIDENCE),))
    trial.in_place(2, trial.members())
    assert time.monotonic() - began < 8
    trial.end()
    assert trial.losses()
