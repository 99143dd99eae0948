"""`ciuic set` on two real ranks: the same step on both, over a crash, and what it refuses."""

import json
from pathlib import Path

import pytest

from contract.control import read_control
from contract.events import GenerationResumed, HotSet
from contract.layout import RunDir
from contract.metrics import row_of
from tests.end_to_end.conftest import Scene, bodies, hit, wait_for
from tests.supervisor.schemas import check

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

SETTINGS = (
    "run.steps=1000",
    "checkpoint.interval_steps=1000",
    "data.evaluate_interval_steps=0",
    'schedule={kind="constant"}',
)


HOT = {"lr_factor": 0.5, "optimizer.gradient_clipping": 0.01, "log_level": "info"}  # info: rank 1 tells too


def rows(run: RunDir, generation: int) -> list[dict]:
    path = run.metrics_of(1, generation)
    return [row for line in path.read_bytes().split(b"\n") if (row := row_of(line)) is not None]


def taken_over(scene: Scene, run: RunDir) -> list[tuple[str, str, int]]:
    """(generation, rank, first step) of every line that says so."""
    found = scene.ciuic("logs", run.run_id, "--grep", r"from step \d+ on").stdout.splitlines()
    words = [line.split() for line in found]
    return [(line[1], line[2], int(line[line.index("step") + 1])) for line in words]


def profiled(scene: Scene, run: RunDir) -> None:
    """A profile on demand, on both ranks, in the table, the story and the report."""
    done = scene.ciuic("profile", run.run_id, "--steps", "2", "--ranks", "0,1", "--json")
    [found] = check("profile", done.stdout)["profiles"]
    assert [item["rank"] for item in found["ranks"]] == [0, 1]
    for item in found["ranks"]:
        assert item["steps"] == 2
        assert item["timing"]["covered"] >= 0.95
        assert Path(item["trace"]).exists()
    assert len({item["first_step"] for item in found["ranks"]}) == 1, "both ranks profile the same steps"
    shown = scene.ciuic("profile", run.run_id, "--show").stdout
    assert "not covered by computation" in shown
    assert found["path"] in scene.ciuic("explain", run.run_id).stdout
    told = check("report", scene.ciuic("report", run.run_id, "--json").stdout)
    assert [item["path"] for item in told["profiles"]] == [found["path"]]


def test_all_ranks_take_it_over_at_one_step_and_a_restart_keeps_it(scene: Scene) -> None:
    run = scene.submit(*SETTINGS)
    scene.supervise()
    wait_for(lambda: run.metrics_of(1, 1).exists() and len(rows(run, 1)) >= 2, 120, "two steps")
    refused = scene.ciuic("set", run.run_id, "data.path=/elsewhere", check=False)
    assert refused.returncode == 1
    assert "between two jobs" in refused.stderr
    done = scene.ciuic(
        "set",
        run.run_id,
        "lr_factor=0.5",
        "optimizer.gradient_clipping=0.01",
        "log_level=info",
        "checkpoint=now",
    )
    assert "next step boundary" in done.stdout
    assert [body.values for body in bodies(run) if isinstance(body, HotSet)] == [HOT]
    wait_for(lambda: any(row["lr"] < rows(run, 1)[0]["lr"] for row in rows(run, 1)), 60, "the smaller rate")
    wait_for(lambda: list(run.checkpoints.glob("*/MANIFEST.json")), 60, "the save")
    profiled(scene, run)
    hit(run, 1, lambda found: found.step >= 8)
    wait_for(lambda: run.metrics_of(1, 2).exists() and len(rows(run, 2)) >= 2, 90, lambda: scene.story(run))
    wait_for(lambda: len(taken_over(scene, run)) >= 4, 20, "the words of both ranks")

    first, full = rows(run, 1), rows(run, 1)[0]["lr"]
    began = next(row["step"] for row in first if row["lr"] != full)
    assert [row["lr"] for row in first] == [full if row["step"] < began else full / 2 for row in first]
    assert all(row["lr"] == full / 2 for row in rows(run, 2)), "the restart keeps it from its first step on"
    resumed = [body.step for body in bodies(run) if isinstance(body, GenerationResumed)]
    assert sorted(taken_over(scene, run)) == [
        ("g0001", "r0", began),
        ("g0001", "r1", began),
        ("g0002", "r0", resumed[1] + 1),
        ("g0002", "r1", resumed[1] + 1),
    ]
    control = read_control(run)
    assert control is not None
    assert control.hot["lr_factor"] == 0.5
    facts = json.loads(scene.ciuic("status", run.run_id, "--json").stdout)
    assert facts["hot"] == HOT
    assert "lr_factor=0.5" in scene.ciuic("explain", run.run_id).stdout
