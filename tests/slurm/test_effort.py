"""What the agent measures of a worker that stands still, and what it knows of a death: real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from contract.exits import KERNEL_OOM
from slurm.agent.effort import Effort
from slurm.agent.memory import MemoryWatch
from tests.slurm.conftest import config_of, wait_for

SLEEP = "import time\ntime.sleep(600)"
SPIN = "while True: pass"
WRITE = "import os, time\nfile = open(os.devnull, 'wb')\nwhile True:\n    file.write(bytes(1 << 20)); time.sleep(0.001)"


@pytest.mark.parametrize(
    ("program", "busy", "quiet"), [(SLEEP, False, True), (SPIN, True, True), (WRITE, True, False)]
)
def test_sleeping_spinning_and_writing_are_told_apart(program, busy, quiet):
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        effort, began = Effort(), time.monotonic()

        def told():
            seen = effort.look(process.pid, 7, time.monotonic())
            long_enough = time.monotonic() - began > 2.5
            wanted = seen.busy is not None and (seen.busy > 0.02) == busy and (seen.quiet_s > 1.0) == quiet
            return long_enough and wanted

        wait_for(told, 30, "the difference")
        fresh = effort.look(process.pid, 8, time.monotonic())
        assert (fresh.busy, fresh.quiet_s) == (None, 0.0)
    finally:
        process.kill()
        process.wait()
    assert effort.look(process.pid, 8, time.monotonic()).os_state == ""


def test_only_a_kill_of_this_moment_counts(tmp_path):
    source = tmp_path / "vmstat"
    source.write_text("nr_free_pages 5\noom_kill 3\n")
    watch = MemoryWatch(source=source)
    assert watch.killed() == 0
    watch.mark(100.0)
    source.write_text("nr_free_pages 5\noom_kill 4\n")
    assert watch.killed() == 1
    for second in range(101, 108):
        watch.mark(float(second))
    assert watch.killed() == 0
    assert MemoryWatch(source=tmp_path / "none").killed() == 0
    assert KERNEL_OOM


def test_an_agent_that_was_stopped_counts_from_its_waking(start):
    """A frozen machine: nobody ran, so nobody stood still."""
    trial = start(config_of("--step-time", "0.03", run={"steps": 5000}))
    worker = trial.at_step(0, 3)
    agent = trial.beat("0").pid
    for pid in (agent, worker.pid):
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 6.0, 10, "six seconds")
    os.kill(agent, signal.SIGCONT)
    woken = wait_for(
        lambda: [note for note in trial.beat("0").notes if "did not run for" in note], 20, "the note"
    )
    assert trial.worker(0).idle_s < 5.0
    assert woken
    os.kill(worker.pid, signal.SIGCONT)
    trial.at_step(0, worker.step + 3)
