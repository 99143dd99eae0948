"""Trackers: one curve over restarts, as the real TensorBoard reads it; services that are away cost nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract import config as configuration
from contract.config.trackers import Trackers
from contract.layout import RunDir
from trainer.trackers.services import Rows


@pytest.mark.train
def test_tensorboard_shows_one_curve_over_a_restart(bench):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = bench(trackers={"tensorboard": "on"}, data={"evaluate_interval_steps": 0})
    first = run.start()
    first.until(lambda page: page.step >= 5)
    first.signal(signal.SIGKILL)
    first.codes()
    run.train()
    assert [row["step"] for row in run.steps(2)] == [4, 5, 6, 7, 8], "steps 4 and 5 are done again"
    found = accumulator.EventAccumulator(
        str(run.run.path / "tensorboard"), size_guidance={accumulator.SCALARS: 0}
    ).Reload()
    for tag, key in (
        ("train/loss", "loss"),
        ("train/grad_norm", "grad_norm"),
        ("rate/embedding", "lr_embedding"),
    ):
        points = found.Scalars(tag)
        assert [point.step for point in points] == list(range(1, 9)), "no zigzag, and no step is missing"
        assert [point.value for point in points] == pytest.approx([row[key] for row in run.merged().values()])


def test_what_a_service_needs_is_asked_for_before_the_run(monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("contract.config.trackers._installed", lambda package: package == "wandb")
    wanted = Trackers(tensorboard="on", wandb_project="p", swanlab_project="q")
    assert wanted.contradictions() == [
        'tensorboard: the package is not installed: pip install "ciuic[trackers]"',
        "wandb_project: no key in the environment variable WANDB_API_KEY (or WANDB_MODE=offline)",
        "swanlab_project: the package is not installed: pip install swanlab",
    ]
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert Trackers(wandb_project="p").contradictions() == []


@pytest.fixture
def two_generations(tmp_path) -> RunDir:
    """Steps 1 to 5 of generation 1; generation 2 resumed at 3 and did 4 to 6."""
    run = RunDir(path=tmp_path / "run-1")
    run.metrics.mkdir(parents=True)
    run.attempt(1).path.mkdir(parents=True)
    value = {"run": {"steps": 6}, "trackers": {"wandb_project": "p"}}
    run.config.write_text(configuration.dump(configuration.RunConfig.model_validate(value)))
    for generation, steps in ((1, range(1, 6)), (2, range(4, 7))):
        rows = (json.dumps({"step": step, "loss": generation + step / 10}) for step in steps)
        run.metrics_of(1, generation).write_text("".join(f"{row}\n" for row in rows))
    run.attempt(1).resume(1).write_text(json.dumps({"version": 1, "step": 0}))
    run.attempt(1).resume(2).write_text(json.dumps({"version": 1, "step": 3}))
    return run


def steps_of(rows: Rows) -> list[int]:
    return [row["step"] for row in rows.each()]


def test_a_service_gets_every_step_once_whatever_was_heard_before(two_generations):
    def rows(after: int) -> Rows:
        return Rows(two_generations, 1, 2, resumed_at=3, after=after)

    assert steps_of(rows(0)) == [1, 2, 3, 4, 5, 6], "it was away for a whole generation"
    assert steps_of(rows(2)) == [3, 4, 5, 6]
    assert steps_of(rows(5)) == [6], "what it knows of a step stays"
    cut_short = rows(3)
    assert next(iter(cut_short.each()))["step"] == 4
    assert steps_of(cut_short) == [4, 5, 6], "a row that was refused is told again"
    with two_generations.metrics_of(1, 2).open("a") as file:
        file.write('{"step": 7, "lo')
    assert steps_of(cut_short) == []
    with two_generations.metrics_of(1, 2).open("a") as file:
        file.write('ss": 1.0}\n')
    assert steps_of(cut_short) == [7]


def test_a_service_that_is_away_is_said_and_ends_with_the_training(two_generations, tmp_path):
    """The package raises as it does without a network; the process still ends when rank 0 has closed the pipe."""
    (tmp_path / "wandb.py").write_text(
        "def init(**_): raise ConnectionError('no route')\nclass Settings:\n def __init__(self, **_): pass\n"
    )
    done = beside(two_generations, {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"})
    assert done.returncode == 0
    assert "wandb is not reached (ConnectionError: no route)" in done.stderr
    assert not (two_generations.trackers / "wandb.json").exists()


def test_weights_and_biases_itself_takes_the_rows(two_generations):
    pytest.importorskip("wandb", reason="the package is not installed here")
    done = beside(two_generations, {"WANDB_MODE": "offline"})
    assert done.returncode == 0, done.stderr
    assert json.loads((two_generations.trackers / "wandb.json").read_text())["step"] == 6


def beside(run: RunDir, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "trainer.trackers", str(run.path), "1", "2", "3"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
