"""A root with real runs: the stand-in training program under real agents, a real supervisor, a real robot."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from contract import events as ev
from contract.beat import read_beat
from contract.config import RunConfig, load
from contract.events import Body, Event
from contract.fold import fold
from contract.history import History
from contract.journal import JournalReader
from contract.layout import Root, RunDir
from slurm import processes
from slurm.create import create_run, first_attempt
from slurm.queue import Job, LocalQueue
from supervisor.demo.robot import Robot
from tests.supervisor.conftest import wait_for

STANDIN = Path(__file__).parents[1] / "standin.py"
RECIPE = """
[run]
name = "t"
steps = {steps}
[metadata.labels]
"ciuic.io/watchdog" = "{watchdog}"
{labels}
[job]
nodes = {nodes}
ranks_per_node = {ranks}
warm = false
command = {command}
[checkpoint]
interval_steps = 5
[monitor]
beat_s = 0.1
hang_floor_s = 1.5
first_step_s = 20.0
[supervisor]
tick_s = 0.05
backoff_s = 0.1
[alerts.wecom]
base_url = "{url}"
{sections}
"""


class Place:
    """Everything of one test. `close` ends whatever the test left, by its own pids, and looks for the key."""

    def __init__(self, folder: Path, robot: Robot) -> None:
        self.root = Root(path=folder / "runs")
        self.root.path.mkdir()
        self.robot = robot
        self.log = folder / "supervisor.log"
        self.supervisors: list[subprocess.Popen] = []
        self._folder = folder

    def submit(self, *arguments: str, **settings) -> RunDir:
        """A run of the stand-in with these arguments, its first attempt handed in."""
        run, config = self.create(*arguments, **settings)
        assert not first_attempt(run, config).problem
        return run

    def create(
        self,
        *arguments: str,
        steps: int = 40,
        watchdog: bool = True,
        nodes: int = 1,
        ranks: int = 2,
        labels: str = "",
        sections: str = "",
    ) -> tuple[RunDir, RunConfig]:
        """The same, not handed in yet."""
        command = [sys.executable, "-P", str(STANDIN), *arguments]
        recipe = self._folder / "recipe.toml"
        recipe.write_text(
            RECIPE.format(
                steps=steps,
                watchdog=str(watchdog).lower(),
                nodes=nodes,
                ranks=ranks,
                command=json.dumps(command),
                url=self.robot.url,
                labels=labels,
                sections=sections,
            )
        )
        config: RunConfig = load(recipe)
        return create_run(config, self.root.path), config

    def supervise(self, *options: str, **environment: str) -> subprocess.Popen:
        """The daemon, as a person starts it."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command("supervise", *options),
                stdout=log,
                stderr=log,
                env={**self._environment(), **environment},
            )
        self.supervisors.append(process)
        return process

    def ciuic(self, *arguments: str, timeout: float = 60, **variables: str) -> subprocess.CompletedProcess:
        """Any other command, to its end, with these environment variables besides."""
        return subprocess.run(
            self._command(*arguments),
            capture_output=True,
            text=True,
            errors="replace",
            env=self._environment() | variables,
            timeout=timeout,
            check=False,
        )

    def facts(self, run: RunDir) -> dict:
        return json.loads(self.ciuic("status", run.run_id, "--json").stdout)

    def close(self) -> None:
        for process in self.supervisors:
            process.kill()
            process.wait()
        if self.log.exists():
            print(self.log.read_text())  # pytest shows it when the test failed
        for path in self.root.path.glob("[a-z]*"):
            _end_jobs(RunDir(path=path))
        found = [path for path in self._folder.rglob("*") if path.is_file() and self._has_key(path)]
        assert not found, f"the robot's key stands in {found}"

    def _has_key(self, path: Path) -> bool:
        return self.robot.key.encode() in path.read_bytes()

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "ciuic", *arguments, "--root", str(self.root.path)]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CIUIC_")}
        return {**kept, "CIUIC_WECOM_KEY": self.robot.key, "LANG": "C.UTF-8"}


def events(run: RunDir) -> list[Event]:
    return JournalReader(run.journal).new()


def bodies(run: RunDir, kind: type[Body]) -> list:
    """All events of a kind, as they stand in the journal."""
    return [event.body for event in events(run) if isinstance(event.body, kind)]


def history(run: RunDir) -> History:
    return fold(events(run))


def workers(run: RunDir, attempt: int = 1, generation: int | None = None) -> dict:
    """rank → its newest beat, of the generation if one is given."""
    found = {}
    for path in run.attempt(attempt).beats.glob("*"):
        beat = read_beat(path)
        if beat and generation in {None, beat.generation}:
            found |= {worker.rank: worker for worker in beat.workers}
    return found


def wait_for_step(run: RunDir, step: int, *, attempt: int = 1, generation: int | None = None, rank: int = 0):
    """The rank's beat once it has done this step."""

    def there():
        worker = workers(run, attempt, generation).get(rank)
        return worker if worker and worker.step >= step and worker.exit_code is None else None

    return wait_for(there, seconds=30, what=f"step {step} of {run.run_id}")


def wait_for_state(run: RunDir, state: str, seconds: float = 40) -> History:
    def there():
        found = history(run)
        return found if found.state == state else None

    return wait_for(there, seconds=seconds, what=f"{run.run_id} {state}")


def hurt(worker, number: signal.Signals) -> None:
    os.kill(worker.pid, number)


def alive(run: RunDir) -> list[int]:
    """Attempts of which an agent lives."""
    numbers = [int(path.name) for path in run.attempts.glob("[0-9]*")]
    jobs = [Job(run=run, attempt=number) for number in numbers]
    return [job.attempt for job in jobs if any(agents(run, job.attempt))]


def agents(run: RunDir, attempt: int) -> list[processes.Found]:
    return [item for item in processes.find(run, attempt) if item.role is processes.Role.AGENT]


def _end_jobs(run: RunDir) -> None:
    queue = LocalQueue()
    for number in (int(path.name) for path in run.attempts.glob("[0-9]*")):
        for worker in workers(run, number).values():
            if worker.exit_code is None:
                _wake(worker.pid)
        job = Job(run=run, attempt=number)
        queue.cancel(job, force=True)
        wait_for(lambda job=job: not queue.look([job])[job.key].state.alive, what="the end of the job")


def _wake(pid: int) -> None:
    """A stopped process could not die of its parent's end in time."""
    try:
        if b"standin.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGCONT)
    except (FileNotFoundError, ProcessLookupError):
        return


def judged(run: RunDir) -> list[tuple[int, int, str, str]]:
    return [(item.attempt, item.generation, item.verdict, item.cause) for item in bodies(run, ev.Judged)]
