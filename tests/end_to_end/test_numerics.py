"""Data that makes the loss NaN, with the real trainer and a real supervisor: rolled back, jumped, never met again."""

import json
import sys
from pathlib import Path

import pytest

from contract.control import read_control
from contract.events import BoundsSet, GenerationResumed, Judged
from contract.layout import RunDir
from contract.metrics import merged
from tests.end_to_end.conftest import Scene, bodies, hit

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

STEPS, BATCH = 30, 16
BAD = (10 * BATCH, 11 * BATCH)  # the data of step 11
PROGRAM = [sys.executable, "-P", str(Path(__file__).with_name("poisoned.py")), *map(str, BAD)]
SETTINGS = (
    f"run.steps={STEPS}",
    f"job.command={json.dumps(PROGRAM)}",
    "checkpoint.interval_steps=4",
    "data.evaluate_interval_steps=0",
    "supervisor.in_place_limit=20",
    'schedule={kind="constant"}',
)


def positions(run: RunDir) -> list[tuple[int, int]]:
    return [tuple(row["positions"]) for row in merged(run).values()]


def test_a_nan_rolls_back_and_its_data_is_jumped_for_good(scene: Scene) -> None:
    run = scene.submit(*SETTINGS)
    scene.supervise()
    hit(run, 1, lambda found: found.step >= 20)  # long after: a resume of another kind
    assert scene.wait_for_end(run) == "completed", scene.story(run)

    told = bodies(run)
    judged = [body for body in told if isinstance(body, Judged)]
    assert [body.cause for body in judged] == ["nan", "signal"], scene.story(run)
    assert "rank 1" in judged[0].reason
    bounds = [body for body in told if isinstance(body, BoundsSet)]
    assert [(body.max_step, body.skip_windows) for body in bounds] == [(8, (BAD,))]
    resumed = [body.step for body in told if isinstance(body, GenerationResumed)]
    assert resumed[:2] == [0, 8]
    assert resumed[2] >= 16
    control = read_control(run)
    assert control is not None
    assert control.skip_windows == (BAD,)

    wanted = [(step * BATCH, (step + 1) * BATCH) for step in range(STEPS + 1) if step != 10]
    assert positions(run) == wanted
    assert all(row["loss"] is not None for row in merged(run).values())
