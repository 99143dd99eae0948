"""`ciuic demo`: the main job as a newcomer sees it. Real processes, real faults from outside, a stand-in robot."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.beat import WorkerBeat, read_beat
from contract.control import read_control
from contract.events import Body, GenerationResumed, Judged, Recovered, StateChanged
from contract.journal import JournalReader
from contract.layout import Root, RunDir
from contract.metrics import merged
from supervisor.demo.display import Display
from supervisor.demo.robot import Robot

_CIUIC = (sys.executable, "-P", "-m", "ciuic")
_KEY_VARIABLE = "CIUIC_WECOM_KEY"
_GIVE_UP_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A signal that a rank gets from outside once it has completed so many steps."""

    step: int
    rank: int
    number: signal.Signals


STEPS = 160
FAULTS = (
    Fault(step=45, rank=1, number=signal.SIGKILL),
    Fault(step=105, rank=0, number=signal.SIGSTOP),
)


class DemoError(Exception):
    """The demo cannot go on; the sentence says why and what to do."""


def tell_the_story(recipe: Path, root: Path, display: Display) -> bool:
    """Run the demo. True when the run completed and recovered from every fault.

    Raises:
        DemoError: something is missing, or the run did not come to its end.
    """
    root.mkdir(parents=True, exist_ok=True)
    _prepare_data(recipe, display)
    with Robot(key=secrets.token_hex(16)) as robot:
        environment = {**os.environ, _KEY_VARIABLE: robot.key}
        started = time.monotonic()
        run = _submit(recipe, root, robot, environment)
        display.submitted(run.run_id)
        with _supervisor(root, run, environment) as supervisor:
            state = _follow(run, robot, display, supervisor)
            _wait(lambda: not _undelivered(run), 10.0)
        display.summary(
            run,
            _recoveries(run),
            list(merged(run).values()),
            robot.texts(),
            seconds=time.monotonic() - started,
        )
    return state == "completed" and len(_recoveries(run)) == len(FAULTS)


def _prepare_data(recipe: Path, display: Display) -> None:
    """Token shards from the standard library, unless they are there already (set-up makes them)."""
    target = recipe.parent.parent / "data" / "stdlib"
    if (target / "index.json").exists():
        return
    display.say("prepare")
    _check([*_CIUIC, "trainer", "prepare-data", str(target), "--stdlib", "--cap-mb", "8"], dict(os.environ))


def _submit(recipe: Path, root: Path, robot: Robot, environment: dict[str, str]) -> RunDir:
    settings = [
        "--set",
        "run.name=demo",
        "--set",
        f"run.steps={STEPS}",
        "--set",
        f'alerts.wecom.base_url="{robot.url}"',
    ]
    output = _check([*_CIUIC, "submit", str(recipe), "--root", str(root), *settings], environment)
    return Root(path=root).run(output.split()[-1])


def _check(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"{' '.join(command[3:5])} ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


@contextmanager
def _supervisor(root: Path, run: RunDir, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor as a process of its own, as on a cluster; ended by its pid."""
    with (root / f"{run.run_id}-supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [*_CIUIC, "supervise", "--root", str(root)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _follow(run: RunDir, robot: Robot, display: Display, supervisor: subprocess.Popen[bytes]) -> str:
    """Watch until the run is at its end, hurting it on the way. Returns the final state."""
    journal = JournalReader(run.journal)
    waiting = list(FAULTS)
    told = 0
    deadline = time.monotonic() + _GIVE_UP_S
    state = ""
    with display.progress(_target(run)):
        while state not in {"completed", "failed", "cancelled"}:
            if time.monotonic() > deadline:
                raise DemoError(
                    f"no end within {_GIVE_UP_S:g} s; look at: ciuic explain {run.run_id} --root {run.path.parent}"
                )
            if supervisor.poll() is not None:
                raise DemoError(
                    f"the supervisor ended; its log is {run.path.parent / run.run_id}-supervisor.log"
                )
            rows = list(merged(run).values())
            for event in journal.new():
                state = event.body.state if isinstance(event.body, StateChanged) else state
                _tell(event.body, display)
            for text in robot.texts()[told:]:
                display.alert(text)
                told += 1
            display.update(rows, state)
            if waiting and _hurt(run, waiting[0], display):
                waiting.pop(0)
            time.sleep(0.1)
    return state


def _tell(body: Body, display: Display) -> None:
    match body:
        case Judged():
            display.verdict(body)
        case GenerationResumed() if body.generation > 1 or body.attempt > 1:
            display.say("resumed", step=body.step, generation=body.generation)
        case Recovered():
            display.say("recovered", step=body.step, detect=body.detect_s, restart=body.restart_s)
        case _:
            pass


def _hurt(run: RunDir, fault: Fault, display: Display) -> bool:
    """Send the signal if its step has come and nothing else is being recovered."""
    worker = _worker(run, fault.rank)
    if worker is None or worker.step < fault.step:
        return False
    display.say("hurt", signal=fault.number.name, rank=fault.rank, step=worker.step)
    os.kill(worker.pid, fault.number)
    return True


def _worker(run: RunDir, rank: int) -> WorkerBeat | None:
    """The living worker with this rank in the newest generation."""
    control = read_control(run)
    if control is None:
        return None
    for path in run.attempt(control.attempt).beats.glob("*"):
        beat = read_beat(path)
        if beat is None or (beat.attempt, beat.generation) != control.at:
            continue
        for worker in beat.workers:
            if worker.rank == rank and worker.exit_code is None and worker.pid > 0:
                return worker
    return None


def _target(run: RunDir) -> int:
    from contract.config import read_resolved  # noqa: PLC0415 - pydantic, only here

    return read_resolved(run.config).run.steps


def _recoveries(run: RunDir) -> list[Recovered]:
    return [event.body for event in JournalReader(run.journal).new() if isinstance(event.body, Recovered)]


def _undelivered(run: RunDir) -> bool:
    from contract.fold import fold  # noqa: PLC0415 - only at the end

    return bool(fold(JournalReader(run.journal).new()).outbox)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
