"""The real trainer on a real Slurm, with the recipe that people try; beside it a run that meets Slurm's real time limit."""

from pathlib import Path

import pytest

from contract import events as ev
from contract.config import RunConfig, load
from contract.layout import RunDir
from contract.states import Cause, VerdictKind
from tests.cluster import faults
from tests.cluster.conftest import Field, beats, bodies, history, losses, members
from tests.standin import expected_losses

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parents[2]
RECIPE = HERE / "configs" / "tiny-slurm.toml"
STEPS = 40


@pytest.fixture(scope="module", autouse=True)
def data_is_prepared() -> None:
    if not (HERE / "data" / "stdlib" / "index.json").exists():
        pytest.fail("data/stdlib is missing: make setup prepares it")


def recipe(field: Field, **sections: object) -> RunConfig:
    settings = {
        "run.steps": STEPS,
        "checkpoint.interval_steps": 6,
        "data.evaluate_interval_steps": 0,
        "monitor.node_silent_s": 6.0,
        "supervisor.tick_s": 0.2,
        "supervisor.queue_s": 1.0,
        "alerts.wecom.base_url": field.robot.url,
        **sections,
    }
    return load(RECIPE, [f"{key}={value}" for key, value in settings.items()])


def checkpoint_then_step(field: Field, run: RunDir, after: int) -> None:
    """Some steps past a checkpoint, so that a fault costs something."""
    field.until_event(run, ev.CheckpointSeen, 90, after)
    field.until_step(run, max(losses(run)) + 2, 30)


def test_recovered_equals_uninterrupted_on_slurm(field: Field) -> None:
    limited = field.submit(
        field.config(
            "--step-time",
            "0.05",
            run={"steps": 2500},
            job={"nodes": 1, "ranks_per_node": 2, "time_limit_min": 1, "signal_before_limit_s": 10},
            supervisor={"max_failures": 1},
        )
    )
    field.supervise()
    calm = field.submit(recipe(field, **{"job.spare_nodes": 0}))
    assert field.until_end(calm, 120) == "completed"

    run = field.submit(recipe(field))
    checkpoint_then_step(field, run, 0)
    field.until_agents(run, 3)  # a spare that is still at its imports takes nobody's place
    used = {beat.node for beat in beats(limited)}
    lost = next(node for node in members(run) if node not in used)
    verdict, back = faults.node_lost(field, run, lost)
    assert back.attempt == verdict.attempt, "the spare stood ready in the same job"
    # The dead node stays away: srun waits for its task when all others have left, and must not be waited for.
    field.until_step(run, max(losses(run)) + 2, 30)
    faults.time_limit(field, run)
    assert field.until_end(run, 90) == "completed"
    assert losses(run) == losses(calm)
    assert list(losses(run)) == list(range(1, STEPS + 1))

    two_limits_reached(field, limited)


def two_limits_reached(field: Field, run: RunDir) -> None:
    """Slurm's own signal, twice: saved by every rank, chained, and no failure counted (one would have been too many)."""
    field.until_event(run, ev.AttemptIntended, 90, attempt=3)
    field.until_step(run, max(losses(run)) + 2)
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(2500)
    found = bodies(run, ev.Judged)
    assert {(item.verdict, item.cause) for item in found} == {(VerdictKind.SAVED, Cause.TIME_LIMIT)}
    assert not any(item.repeated_steps for item in history(run).faults), "a save was not complete"
    assert all("time limit" in line for line in field.explain(run).splitlines() if "judged" in line)
