"""A run as a user has it: `ciuic submit`, a supervisor process, a robot on loopback, and faults from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contract.beat import Beat, WorkerBeat, read_beat
from contract.control import read_control
from contract.events import Body
from contract.journal import JournalReader
from contract.layout import Root, RunDir
from contract.metrics import merged
from supervisor.demo.robot import Robot

CIUIC = (sys.executable, "-P", "-m", "ciuic")
RECIPE = Path(__file__).resolve().parents[2] / "configs" / "tiny-local.toml"
T = TypeVar("T")
KEY = "11112222-3333-4444-5555-666677778888"


def wait_for(look: Callable[[], T], seconds: float, what: Callable[[], str] | str) -> T:
    """The first true value of `look`; a failure says what did not come about."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.01)
    return found


@dataclass
class Scene:
    """One root with its supervisor and robot."""

    root: Path
    robot: Robot
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CIUIC_WECOM_KEY": KEY, "CIUIC_ROOT": str(self.root)}

    def ciuic(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*CIUIC, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def submit(self, *settings: str, recipe: Path = RECIPE) -> RunDir:
        all_settings = (f"alerts.wecom.base_url={json.dumps(self.robot.url)}", *settings)
        overrides = [part for item in all_settings for part in ("--set", item)]
        run_id = self.ciuic("submit", str(recipe), *overrides).stdout.split()[-1]
        self.runs.append(run_id)
        return Root(path=self.root).run(run_id)

    def supervise(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.root.parent / f"supervisor-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*CIUIC, "supervise", *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def status(self, run: RunDir) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ciuic("status", run.run_id, "--json").stdout)
        return found

    def wait_for_end(self, run: RunDir, seconds: float = 120) -> str:
        """The final state, read from the journal."""

        def final() -> str:
            states = [body.state for body in bodies(run) if type(body).__name__ == "StateChanged"]  # type: ignore[attr-defined]
            return (
                states[-1] if states and states[-1] in {"completed", "failed", "cancelled", "paused"} else ""
            )

        return wait_for(final, seconds, lambda: f"{run.run_id} is not at its end\n{self.story(run)}")

    def story(self, run: RunDir) -> str:
        logs = "".join(
            f"--- {path}\n{path.read_text(errors='replace')[-3000:]}\n"
            for path in sorted(run.attempts.glob("*/logs/*"))
        )
        supervisors = "".join(
            path.read_text()[-3000:] for path in sorted(self.root.parent.glob("supervisor-*.log"))
        )
        events = "\n".join(str(body)[:300] for body in bodies(run)[-25:])
        return f"{events}\n{logs}\n--- supervisors\n{supervisors}"

    def close(self) -> None:
        for run_id in self.runs:
            self.ciuic("cancel", run_id, check=False)
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


def bodies(run: RunDir) -> list[Body]:
    return [event.body for event in JournalReader(run.journal).new()]


def beats(run: RunDir) -> list[Beat]:
    control = read_control(run)
    if control is None:
        return []
    found = [read_beat(path) for path in run.attempt(control.attempt).beats.glob("*")]
    return [beat for beat in found if beat and (beat.attempt, beat.generation) == control.at]


def worker(run: RunDir, rank: int) -> WorkerBeat | None:
    """The rank of the newest generation, as its node's beat tells it; None before it lives or after it died."""
    for beat in beats(run):
        for item in beat.workers:
            if item.rank == rank and item.exit_code is None and item.pid:
                return item
    return None


def wait_for_worker(
    run: RunDir, rank: int, condition: Callable[[WorkerBeat], bool], seconds: float = 90
) -> WorkerBeat:
    def look() -> WorkerBeat | None:
        found = worker(run, rank)
        return found if found and condition(found) else None

    return wait_for(look, seconds, lambda: f"rank {rank}: {worker(run, rank)}; {bodies(run)[-5:]}")  # type: ignore[return-value]


def hit(
    run: RunDir, rank: int, condition: Callable[[WorkerBeat], bool], number: int = signal.SIGKILL
) -> WorkerBeat:
    """Signal a rank once the condition holds."""
    found = wait_for_worker(run, rank, condition)
    os.kill(found.pid, number)
    return found


def losses(run: RunDir) -> dict[int, float]:
    return {step: row["loss"] for step, row in merged(run).items()}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "运行 runs"
    root.mkdir()
    with Robot(key=KEY) as robot:
        scene = Scene(root=root, robot=robot)
        try:
            yield scene
        finally:
            scene.close()
