"""Programs that are not ours under the supervisor: a stock Trainer script, and a plain one that knows nothing of it."""

import json
import signal
import sys
from pathlib import Path

import pytest

from contract import events as ev
from contract.config import ConfigError, load
from contract.layout import RunDir
from slurm.create import create_run, first_attempt
from supervisor.demo.robot import Robot
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import Place, bodies, hurt, wait_for_state, workers

pytestmark = [pytest.mark.train, pytest.mark.timeout(500)]
PROGRAMS = Path(__file__).parents[1] / "programs"
RECIPE = """
[run]
name = "any"
steps = {steps}
[job]
ranks_per_node = {ranks}
command = {command}
environment = {{ PYTHONPATH = "{path}" }}
[checkpoint]
foreign_glob = "{glob}"
[supervisor]
tick_s = 0.1
backoff_s = 0.1
[alerts.wecom]
base_url = "{url}"
"""


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


@pytest.fixture
def robot():
    with Robot() as server:
        yield server


def start(place: Place, folder: Path, program: str, glob: str, *, ranks: int, steps: int) -> RunDir:
    command = [sys.executable, str(PROGRAMS / program), str(folder / "out"), str(steps)]
    recipe = folder / "recipe.toml"
    recipe.write_text(
        RECIPE.format(
            steps=steps,
            ranks=ranks,
            command=json.dumps(command),
            path=PROGRAMS.parents[1],
            glob=f"{folder}/out/{glob}",
            url=place.robot.url,
        )
    )
    run = create_run(config := load(recipe), place.root.path)
    assert not first_attempt(run, config).problem
    return run


def seen(run: RunDir) -> list[int]:
    return [item.step for item in bodies(run, ev.CheckpointSeen)]


@pytest.mark.slow  # two imports of transformers
def test_a_stock_trainer_script_is_seen_restarted_and_goes_on_from_its_own_checkpoint(
    place, tmp_path
) -> None:
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    run = start(place, tmp_path, "hugging_face.py", "checkpoint-*/trainer_state.json", ranks=2, steps=1500)
    place.supervise()
    wait_for(lambda: seen(run), seconds=200, what="a checkpoint of the Trainer's own")
    hurt(workers(run)[0], signal.SIGKILL)
    recovered = wait_for(lambda: bodies(run, ev.Recovered), seconds=200, what="the recovery")[0]
    resumed = bodies(run, ev.GenerationResumed)[-1]
    assert resumed.generation == 2
    assert resumed.step >= 10, "it went on from its checkpoint, and that was seen"
    assert recovered.step > resumed.step
    done = place.ciuic("pause", run.run_id, "--lang", "en", timeout=100)
    assert done.returncode == 0, done.stderr
    codes = [json.loads(path.read_text()) for path in run.attempt(1).exits.glob("g0002-*")]
    assert [worker["code"] for record in codes for worker in record["workers"]] == [75, 75]
    saved = max(int(path.parent.name.partition("-")[2]) for path in tmp_path.glob("out/checkpoint-*/trainer_state.json"))  # fmt: skip
    assert saved >= recovered.step
    assert f"newest checkpoint: step {saved}" in done.stdout
    assert place.ciuic("resume", run.run_id).returncode == 0
    wait_for_state(run, "completed", seconds=300)
    assert bodies(run, ev.GenerationResumed)[-1].step >= saved


def test_a_plain_script_is_watched_by_its_processes_and_checkpoints(place, tmp_path) -> None:
    run = start(place, tmp_path, "plain.py", "model_*.pt", ranks=2, steps=200)
    place.supervise()
    wait_for(lambda: seen(run), seconds=200, what="a checkpoint of the script's own")
    hurt(workers(run)[1], signal.SIGKILL)
    wait_for_state(run, "completed", seconds=200)
    assert [item.verdict for item in bodies(run, ev.Judged)] == ["crashed"]
    assert seen(run)[-1] > seen(run)[0]
    log = "".join(path.read_text() for path in run.attempt(1).logs.iterdir())
    assert "begins at step 0" in log
    assert "g0002 r0 | begins at step" in log
    facts = place.facts(run)
    assert facts["newest_checkpoint"]["step"] == 200


def paused(place: Place, run: RunDir) -> str:
    """What a pause says of the run, which has its own words for it then."""
    wait_for(lambda: max((item.step for item in workers(run).values()), default=0) > 20, what="some steps")
    done = place.ciuic("pause", run.run_id, "--lang", "en", timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_that_listens_saves_when_paused_and_goes_on_from_there(place, tmp_path) -> None:
    run = start(place, tmp_path, "listening.py", "saved.*", ranks=1, steps=5000)
    place.supervise()
    said = paused(place, run)
    step = int(next((tmp_path / "out").glob("saved.*")).suffix[1:])
    assert f"newest checkpoint: step {step}" in said
    assert place.ciuic("resume", run.run_id).returncode == 0
    wait_for(lambda: run.attempt(2).logs.is_dir() and any(run.attempt(2).logs.iterdir()), what="its log")
    log = next(run.attempt(2).logs.iterdir())
    wait_for(lambda: f"begins at step {step}" in log.read_text(), what="the step that it goes on from")
    place.ciuic("cancel", run.run_id)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[checkpoint]\nforeign_glob = "x-*"', "programs of your own"),
        ('[job]\ncommand = ["x"]\n[checkpoint]\nforeign_step = "x"', "exactly one group"),
        ('[job]\ncommand = ["x"]\n[checkpoint]\nforeign_glob = "x-*"\n[backup]\ndirectory = "/b"', "copies"),
    ],
)
def test_rules_that_make_no_sense_are_refused(tmp_path, text, word) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"[run]\nsteps = 1\n{text}\n")
    with pytest.raises(ConfigError, match=word):
        load(recipe)
