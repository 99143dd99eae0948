"""The recipe of the demo learns, and at the pace that is kept in tests/data/learning-curve.json."""

import json
import statistics
from pathlib import Path

import pytest

from contract import config as configuration

pytestmark = pytest.mark.train

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "learning-curve.json"
STEPS, EVERY = 60, 10
# The corpus is the standard library of the Python that prepared it, so versions differ a little.
BAND = 0.04  # between seeds it is 0.02


def test_the_demo_learns_as_it_always_did(bench):
    recipe = configuration.load(ROOT / "configs" / "tiny-local.toml")
    if not recipe.data.path or not (Path(recipe.data.path) / "index.json").exists():
        pytest.skip(f"{recipe.data.path} is not prepared: make setup does it")
    taken = recipe.model_dump(mode="json")
    run = bench(
        shape=taken["model"],
        **{key: taken[key] for key in ("data", "batch", "optimizer", "deepspeed", "precision")},
        schedule={"kind": "cosine", "warmup": 10},
        run={"steps": STEPS, "seed": recipe.run.seed},
        checkpoint={"interval_steps": STEPS},
    )
    run.train()
    losses = run.losses()
    curve = [statistics.fmean(losses[at : at + EVERY]) for at in range(0, STEPS, EVERY)]
    golden = json.loads(GOLDEN.read_text())["losses"]
    assert curve == pytest.approx(golden, rel=BAND), [round(value, 3) for value in curve]
    assert run.merged()[STEPS]["val_loss"] < golden[0] - 1.5
