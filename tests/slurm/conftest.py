"""Runs of the stand-in program under real agents, started through submitit's local executor."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.beat import Beat, WorkerBeat, read_beat
from contract.config import RunConfig, parse
from contract.control import Control, read_control, read_go, write_control
from contract.exits import read_exits
from contract.layout import RunDir
from contract.metrics import merged
from contract.states import ControlPhase
from slurm import processes
from slurm.agent.pages import page_directory
from slurm.create import create_run, first_attempt
from slurm.queue import Job, LocalQueue

STANDIN = Path(__file__).parents[1] / "standin.py"


def wait_for(look: Callable[[], Any], seconds: float = 20.0, what: str = "the condition") -> Any:
    """The first true value of `look`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come about within {seconds} s"
        time.sleep(0.005)
    return found


def config_of(*arguments: str, command: list[str] | None = None, **tables: dict[str, Any]) -> RunConfig:
    """A local run of the stand-in with these arguments; `tables` override sections."""
    standin = [sys.executable, "-P", str(STANDIN), *arguments]
    sections: dict[str, dict[str, Any]] = {
        "run": {"name": "test", "steps": 30},
        "job": {"command": standin if command is None else command},
        "data": {"path": "/none"},
        "checkpoint": {"interval_steps": 5},
        "monitor": {"beat_s": 0.2},
    }
    for name, table in tables.items():
        sections.setdefault(name, {}).update(table)
    return parse(sections, source="test", bases=())


class Trial:
    """One submitted run, and what a supervisor would see and do."""

    def __init__(self, config: RunConfig, root: Path, before: Callable[[RunDir], None]) -> None:
        self.config = config
        self.run: RunDir = create_run(config, root)
        before(self.run)
        outcome = first_attempt(self.run, config)
        assert not outcome.problem
        self.job = Job(run=self.run, attempt=1, job_id=outcome.job_id)
        self.queue = LocalQueue()

    @property
    def state(self):
        return self.queue.look([self.job])[self.job.key]

    def beat(self, node: str) -> Beat | None:
        return read_beat(self.run.attempt(1).beat(node))

    def worker(self, rank: int, generation: int = 1) -> WorkerBeat | None:
        for path in self.run.attempt(1).beats.glob("*"):
            beat = read_beat(path)
            if beat and beat.generation == generation:
                for worker in beat.workers:
                    if worker.rank == rank and worker.pid:
                        return worker
        return None

    def at_step(self, rank: int, step: int, generation: int = 1) -> WorkerBeat:
        def look():
            worker = self.worker(rank, generation)
            return worker if worker and worker.step >= step else None

        return wait_for(look, what=f"rank {rank} at step {step}\n{self.log()}")

    def hit(self, rank: int, step: int, number: signal.Signals, generation: int = 1) -> int:
        pid = self.at_step(rank, step, generation).pid
        os.kill(pid, number)
        return pid

    def order(self, phase: ControlPhase, **changes: Any) -> Control:
        control = replace(read_control(self.run), phase=phase, **changes)
        write_control(self.run, control)
        return control

    def in_place(self, generation: int, members: tuple[str, ...]) -> None:
        """What a supervisor does for a restart in place."""
        self.order(ControlPhase.PREPARE, generation=generation, members=members, master="", port=0)

        def ready():
            beats = [self.beat(node) for node in members]
            return beats if all(beat and beat.ready_for == generation for beat in beats) else None

        beats = wait_for(ready, what=f"members ready for {generation}\n{self.log()}")
        self.order(ControlPhase.GO, master=beats[0].address, port=beats[0].port)

    def end(self, seconds: float = 30.0):
        return wait_for(
            lambda: seen if (seen := self.state).state.ended else None, seconds, f"the end\n{self.log()}"
        )

    def log(self) -> str:
        place = self.run.attempt(1)
        logs = "".join(path.read_text() for path in sorted(place.logs.glob("*")))
        return logs + "".join(path.read_text()[-2000:] for path in sorted(place.submission.glob("*.out")))

    def losses(self) -> dict[int, float]:
        return {step: row["loss"] for step, row in merged(self.run).items()}

    def members(self) -> tuple[str, ...]:
        go = wait_for(lambda: read_go(self.run, 1, 1), what=f"the go file\n{self.log()}")
        return go.members

    def exits(self, generation: int = 1):
        return {item.rank: item for item in read_exits(self.run, 1, generation)}

    def close(self) -> None:
        pids = [worker.pid for beat in self._beats() for worker in beat.workers]
        self.queue.cancel(self.job, force=True)
        wait_for(lambda: not processes.find(self.run, 1), what="the end of all processes")
        for pid in pids:
            wait_for(lambda pid=pid: not is_ours(pid, self.run), what=f"the end of worker {pid}")
        # Agents that were killed leave their pages to the next attempt, which never comes here.
        shutil.rmtree(page_directory(self.run, 1, 1).parent, ignore_errors=True)

    def _beats(self) -> list[Beat]:
        return [beat for path in self.run.attempt(1).beats.glob("*") if (beat := read_beat(path))]


def is_ours(pid: int, run: RunDir) -> bool:
    """Whether this pid is a live worker of the run."""
    try:
        return str(run.path) in Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Submits runs, and sees to it that nothing of them is left."""
    trials: list[Trial] = []

    def begin(config: RunConfig, before: Callable[[RunDir], None] = lambda run: None) -> Trial:
        trials.append(Trial(config, tmp_path / "runs", before))
        return trials[-1]

    yield begin
    for trial in trials:
        trial.close()
