"""What the supervisor's tests share: a robot, a run directory written by hand, and waiting for a condition."""

import time
from pathlib import Path

import pytest

from contract import events as ev
from contract.config import RunConfig, dump
from contract.journal import Journal
from contract.layout import Root, RunDir
from supervisor.demo.robot import Robot


def wait_for(condition, *, seconds: float = 20.0, what: str = ""):
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what or condition}")


@pytest.fixture
def robot():
    with Robot() as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Root:
    place = Root(path=tmp_path / "runs")
    place.path.mkdir()
    return place


def config_of(**sections) -> RunConfig:
    """A configuration that needs no data."""
    value = {"run": {"name": "t", "steps": 20}, "job": {"command": ["true"]}}
    for name, section in sections.items():
        value[name] = {**value.get(name, {}), **section}
    return RunConfig.model_validate(value)


def bare_run(root: Root, run_id: str = "t-1", config: RunConfig | None = None) -> RunDir:
    """A run directory with a configuration and a journal that begins, as `submit` leaves it before the first attempt."""
    run = root.run(run_id)
    for place in (run.requests, run.attempts, run.checkpoints, run.metrics):
        place.mkdir(parents=True)
    run.config.write_text(dump(config or config_of()))
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.append(ev.RunCreated(run=run_id, config_digest="", version="0", target_steps=20, target_tokens=0))
    journal.close()
    return run
