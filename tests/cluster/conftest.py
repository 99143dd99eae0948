"""A real Slurm for this session, and runs of the stand-in (or of the real trainer) on it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contract import events as ev
from contract.beat import Beat, read_beat
from contract.config import RunConfig, parse
from contract.control import read_control
from contract.events import Body, Event
from contract.fold import fold
from contract.history import History
from contract.journal import JournalReader
from contract.layout import Root, RunDir
from contract.metrics import merged
from contract.states import AgentPhase, JobState
from slurm import squeue
from slurm.create import create_run, first_attempt
from slurm.queue import Job, SlurmQueue
from slurm.words import Row
from supervisor.demo.robot import Robot
from tests.cluster.slurm_cluster import PACKAGES, Cluster, missing_programs

pytest.register_assert_rewrite("tests.cluster.faults")

KEY = "11112222-3333-4444-5555-666677778888"
STANDIN = Path(__file__).parents[1] / "standin.py"
T = TypeVar("T")
ENDS = {"completed", "failed", "cancelled", "paused"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes without accounting."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"no Slurm here: {', '.join(missing)} missing; on Debian: apt-get install {PACKAGES}")
    with running(Cluster.up) as made:
        yield made


@contextlib.contextmanager
def running(up: Callable[[Cluster], None]) -> Iterator[Cluster]:
    """Own directory, ports and munge; nothing of it is left. The directory's name is short: it holds sockets."""
    directory = Path(tempfile.mkdtemp(prefix="ciuic-slurm-"))
    directory.chmod(0o755)
    made = Cluster(directory=directory)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(made.conf)
    try:
        up(made)
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def wait_for(look: Callable[[], T], seconds: float, what: Callable[[], str] | str) -> T:
    """The first true value of `look`; a failure says what did not come about."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)
    return found


class Field:
    """One root on the cluster with its supervisor and robot, and everything that a test does to them."""

    def __init__(self, cluster: Cluster, folder: Path, robot: Robot) -> None:
        self.cluster, self.robot = cluster, robot
        # Spaces, a quote and Chinese characters on the way to every file: through sbatch, srun and submitit.
        self.root = Root(path=folder / "团队 one's runs")
        self.root.path.mkdir(parents=True)
        self.log = folder / "supervisor.log"
        self.hurry = folder / "hurry"  # the stand-in makes haste once this file exists
        self.path = ""  # put before PATH for supervisors
        self.runs: list[RunDir] = []
        self._supervisors: list[subprocess.Popen[bytes]] = []

    # runs

    def config(self, *arguments: str, **sections: dict[str, Any]) -> RunConfig:
        """The stand-in with these arguments on two nodes; `sections` override what is small here."""
        command = [sys.executable, "-P", str(STANDIN), "--hurry", str(self.hurry), *arguments]
        found: dict[str, dict[str, Any]] = {
            "run": {"name": "t", "steps": 60},
            "job": {
                "executor": "slurm",
                "nodes": 2,
                "command": command,
                "sbatch": {"gres": "gpu:1"},
                "time_limit_min": 60,
                "signal_before_limit_s": 60,
                "warm": False,
            },
            "data": {"path": "/none"},
            "checkpoint": {"interval_steps": 10},
            "monitor": {
                "beat_s": 0.3,
                "hang_floor_s": 3.0,
                "first_step_s": 30.0,
                "node_silent_s": 6.0,
                "unknown_alert_s": 20.0,
            },
            "supervisor": {
                "tick_s": 0.2,
                "queue_s": 1.0,
                "backoff_s": 0.2,
                "backoff_max_s": 2.0,
                "max_failures": 50,
                "in_place_limit": 50,
            },
            "alerts": {"wecom": {"base_url": self.robot.url}},
        }
        for name, values in sections.items():
            found[name] = {**found.get(name, {}), **values}
        return parse(found, source="test", bases=())

    def submit(self, config: RunConfig) -> RunDir:
        run = create_run(config, self.root.path)
        self.runs.append(run)
        outcome = first_attempt(run, config)
        assert not outcome.problem, outcome.problem
        return run

    def create(self, config: RunConfig) -> RunDir:
        """A run whose first attempt is left to the supervisor."""
        run = create_run(config, self.root.path)
        self.runs.append(run)
        return run

    # the supervisor

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.path}:{os.environ['PATH']}" if self.path else os.environ["PATH"]
        return {**os.environ, "CIUIC_WECOM_KEY": KEY, "CIUIC_ROOT": str(self.root.path), "PATH": path}

    def supervise(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ciuic", "supervise"],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._supervisors.append(process)
        return process

    def kill_supervisor(self) -> None:
        for process in self._supervisors:
            if process.poll() is None:
                process.kill()
                process.wait(10)
        self._supervisors.clear()

    def ciuic(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ciuic", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # waiting

    def until_step(self, run: RunDir, step: int, seconds: float = 60) -> int:
        """Every worker of the newest generation has done this step."""

        def look() -> int:
            steps = [
                worker.step for beat in beats(run) for worker in beat.workers if worker.exit_code is None
            ]
            return min(steps) if len(steps) >= 2 and min(steps) >= step else 0

        return wait_for(look, seconds, lambda: f"step {step}\n{self.story(run)}")

    def until_agents(self, run: RunDir, count: int, seconds: float = 60) -> None:
        """So many agents of the newest generation train or stand by: the spares too."""
        up = {AgentPhase.READY, AgentPhase.RUNNING}
        wait_for(
            lambda: sum(beat.phase in up for beat in beats(run)) >= count,
            seconds,
            lambda: f"{count} agents\n{self.story(run)}",
        )

    def until_event(
        self, run: RunDir, kind: type[Body], seconds: float = 60, after: int = 0, **fields: Any
    ) -> Any:
        """The first event of this kind with these fields and a number above `after`."""

        def look() -> Event | None:
            return next(
                (
                    event
                    for event in events(run)
                    if event.seq > after
                    and isinstance(event.body, kind)
                    and all(getattr(event.body, name) == value for name, value in fields.items())
                ),
                None,
            )

        found = wait_for(look, seconds, lambda: f"{kind.__name__} {fields} after {after}\n{self.story(run)}")
        assert found is not None
        return found

    def recovered(self, run: RunDir, after: int, seconds: float = 60) -> tuple[ev.Judged, ev.Recovered]:
        """The verdict that follows event `after`, and the recovery from it."""
        verdict = self.until_event(run, ev.Judged, seconds, after)
        back = self.until_event(run, ev.Recovered, seconds, verdict.seq)
        return verdict.body, back.body

    def until_end(self, run: RunDir, seconds: float = 90) -> str:
        return wait_for(
            lambda: history(run).state.value if history(run).state.value in ENDS else "",
            seconds,
            lambda: f"the end\n{self.story(run)}",
        )

    def until_gone(self, run: RunDir, seconds: float = 60) -> None:
        """No job of the run is in the queue any more."""
        wait_for(lambda: not self.live_jobs(run), seconds, lambda: f"no job\n{self.story(run)}")

    # looking

    def live_jobs(self, run: RunDir) -> list[Row]:
        rows = squeue.list_jobs()
        assert rows is not None, "the controller does not answer"
        return [row for row in rows if row.name == run.run_id and row.state.alive]

    def job_state(self, run: RunDir, attempt: int) -> JobState:
        job = Job(run=run, attempt=attempt, job_id=job_id(run, attempt))
        return SlurmQueue().look([job])[job.key].state

    def story(self, run: RunDir) -> str:
        told = "\n".join(f"{event.seq} {str(event.body)[:260]}" for event in events(run)[-14:])
        newest = history(run).newest
        logs = ""
        if newest is not None:
            place = run.attempt(newest.number)
            paths = [*sorted(place.logs.glob("*")), *sorted(place.submission.glob("*.out"))]
            logs = "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-700:]}\n" for path in paths)
        said = self.log.read_text()[-2500:] if self.log.exists() else ""
        return f"{told}\n{logs}--- supervisor\n{said}\n--- queue\n{self.cluster.run('squeue', '-o', '%i|%T|%r|%N|%k', check=False)}"

    def explain(self, run: RunDir) -> str:
        return self.ciuic("explain", run.run_id, "--lang", "en")

    def close(self) -> None:
        self.kill_supervisor()
        if "UP" not in self.cluster.run("scontrol", "ping", check=False):
            self.cluster.stop_controller()
            self.cluster.start_controller()
        for run in self.runs:
            self.cluster.run("scancel", f"--name={run.run_id}", check=False)
        for node in self.cluster.nodes:
            self.cluster.fail_prolog(node, fail=False)
        self.cluster.heal()
        for run in self.runs:
            shutil.rmtree(pages_of(run), ignore_errors=True)
        leaks = [
            path for path in self.root.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
        ]
        assert not leaks, f"the robot's key stands in {leaks}"


def pages_of(run: RunDir) -> Path:
    from slurm.agent.pages import page_directory

    return page_directory(run, 1, 1).parent


def events(run: RunDir) -> list[Event]:
    return JournalReader(run.journal).new()


def newest(run: RunDir) -> int:
    """Number of the newest event."""
    return max((event.seq for event in events(run)), default=0)


def bodies(run: RunDir, kind: type[T]) -> list[T]:
    return [event.body for event in events(run) if isinstance(event.body, kind)]


def history(run: RunDir) -> History:
    return fold(events(run))


def job_id(run: RunDir, attempt: int = 0) -> str:
    attempts = history(run).attempts
    return next(item.job_id for item in reversed(attempts) if not attempt or item.number == attempt)


def beats(run: RunDir) -> list[Beat]:
    """The beats of the newest generation."""
    control = read_control(run)
    if control is None:
        return []
    found = [read_beat(path) for path in run.attempt(control.attempt).beats.glob("*")]
    return [beat for beat in found if beat and (beat.attempt, beat.generation) == control.at]


def members(run: RunDir) -> tuple[str, ...]:
    """Nodes of the newest generation, rank 0's first."""
    placed = sorted((worker.rank, beat.node) for beat in beats(run) for worker in beat.workers)
    return tuple(node for _, node in placed)


def pid_of(run: RunDir, rank: int) -> int:
    return next(
        worker.pid for beat in beats(run) for worker in beat.workers if worker.rank == rank and worker.pid
    )


def hit(run: RunDir, rank: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid_of(run, rank), number)


def losses(run: RunDir) -> dict[int, float]:
    return {step: row["loss"] for step, row in merged(run).items()}


@pytest.fixture
def field(cluster: Cluster, tmp_path: Path) -> Iterator[Field]:
    with Robot(key=KEY) as robot:
        made = Field(cluster, tmp_path, robot)
        yield made
        made.close()
