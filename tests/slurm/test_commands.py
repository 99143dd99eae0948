"""`ciuic check` and `ciuic submit` as a user runs them, and what creating a run leaves behind."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contract.config import ConfigError, dump, read_resolved
from contract.control import read_control
from contract.files import FileLock
from contract.journal import JournalReader
from contract.layout import RUN_ID, RunDir
from contract.states import ControlPhase
from slurm import submit
from slurm.create import create_run, first_attempt, new_run_id
from slurm.queue import Job, LocalQueue
from tests.slurm.conftest import config_of, wait_for
from tests.supervisor.schemas import check


def ciuic(*arguments, cwd):
    command = [sys.executable, "-P", "-m", "ciuic", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "CIUIC_ROOT"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(dump(config_of("--step-time", "0.01", run={"steps": 5})))
    return path


def kinds(run):
    return [type(event.body).__name__ for event in JournalReader(run.journal).new()]


def test_submit_returns_soon_with_the_run_id_on_the_last_line(recipe, tmp_path):
    begun = time.monotonic()
    done = ciuic("submit", recipe, "--root", "here/runs", "--set", "run.steps=7", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 15
    run = RunDir(path=tmp_path / "here" / "runs" / done.stdout.splitlines()[-1])
    assert RUN_ID.match(run.run_id)
    assert read_resolved(run.config).run.steps == 7
    assert kinds(run) == ["RunCreated", "AttemptIntended", "AttemptSubmitted"]
    job = Job(run=run, attempt=1)
    wait_for(lambda: LocalQueue().look([job])[job.key].state.ended, what="the end")


def clients(folder, **scripts):
    """A PATH on which these are Slurm's clients: shell scripts."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_what_sbatch_refuses_is_told_in_its_own_words_and_one_line(tmp_path, monkeypatch):
    refusal = "echo 'sbatch: error: invalid partition specified: nopart' >&2; echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1"
    monkeypatch.setenv("PATH", clients(tmp_path / "bin", sbatch=refusal, srun="exit 0"))
    recipe = tmp_path / "slurm.toml"
    recipe.write_text(dump(config_of(job={"executor": "slurm", "partition": "nopart"})))
    done = ciuic("submit", recipe, "--root", "runs", cwd=tmp_path)
    assert done.returncode == 1
    [said] = [line for line in done.stderr.splitlines() if "not in the queue" in line]
    assert "sbatch: error: Batch job submission failed: Invalid partition name specified" in said
    assert "FailedJobError" not in done.stderr


def test_submit_says_that_it_waits_for_slurm_and_for_how_long(tmp_path, monkeypatch):
    silent = "exec sleep 60"
    monkeypatch.setenv("PATH", clients(tmp_path / "bin", sbatch=silent, srun="exit 0", squeue="exit 1"))
    recipe = tmp_path / "slurm.toml"
    recipe.write_text(dump(config_of(job={"executor": "slurm"}, supervisor={"submit_timeout_s": 4})))
    begun = time.monotonic()
    done = ciuic("submit", recipe, "--root", "runs", cwd=tmp_path)
    assert time.monotonic() - begun < 30
    assert done.stderr.splitlines()[0] == "waits for Slurm, for 9 s at most"
    assert "no answer within 4 s" in done.stderr
    assert "whether it is in the queue the supervisor finds out" in done.stderr


def test_make_submit_without_a_recipe_submits_nothing():
    done = subprocess.run(
        ["make", "-s", "-C", Path(__file__).parents[2], "submit"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "make submit CONFIG=configs/tiny-local.toml" in done.stderr


def test_a_bad_recipe_shows_everything_and_leaves_nothing(recipe, tmp_path):
    settings = [
        "--set",
        "job.nodes=0",
        "--set",
        "batch.global_bach_size=3",
        "--set",
        "job.partition=a; rm -rf x",
    ]
    for command in ("submit", "check"):
        root = ["--root", "runs"] if command == "submit" else []
        done = ciuic(command, recipe, *root, *settings, cwd=tmp_path)
        assert done.returncode == 78
        for word in ("job.nodes", "global_batch_size", "job.partition", "3 problems"):
            assert word in done.stderr
        assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_what_only_submitting_can_refuse_leaves_nothing_either(tmp_path):
    with pytest.raises(ConfigError, match=r"job\.image.*\n.*run\.root"):
        create_run(config_of(job={"image": "x.sqsh", "executor": "slurm"}), tmp_path / "50%, or so")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_prints_what_would_run_and_makes_no_run(recipe, tmp_path):
    done = ciuic("submit", recipe, "--dry-run", "--root", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH" not in done.stdout
    assert "1 node agent: " in done.stdout
    assert "standin.py" in done.stdout
    on_slurm = ciuic("submit", recipe, "--set", "job.executor=slurm", "--dry-run", cwd=tmp_path)
    assert "#SBATCH --dependency=singleton" in on_slurm.stdout
    assert not (tmp_path / "runs").exists()


def test_check_says_yes(recipe, tmp_path):
    done = ciuic("check", recipe, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in order" in done.stdout


def test_a_new_run_is_whole_or_not_there(tmp_path, monkeypatch):
    run = create_run(config_of(), tmp_path)
    control = read_control(run)
    assert (control.at, control.phase, control.members) == ((1, 1), ControlPhase.PREPARE, ())
    assert kinds(run) == ["RunCreated"]
    assert [path.name for path in tmp_path.iterdir()] == [run.run_id]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slurm.create.write_control", full)
    with pytest.raises(OSError, match="No space"):
        create_run(config_of(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [run.run_id]


def test_a_supervisor_that_was_faster_submits_itself(tmp_path):
    run = create_run(config_of(), tmp_path)
    lock = FileLock(run.lock)
    assert lock.acquire("supervisor")
    assert first_attempt(run, config_of()).left_to_supervisor
    assert kinds(run) == ["RunCreated"]
    lock.release()


@pytest.mark.parametrize(
    ("answer", "permanent"), [({"error": "Invalid partition name"}, True), ({"error": "down"}, False)]
)
def test_a_failed_submission_is_journalled(tmp_path, monkeypatch, answer, permanent):
    run = create_run(config_of(), tmp_path)
    monkeypatch.setattr(submit, "_run_submitter", lambda *_, **__: answer)
    assert first_attempt(run, config_of()).problem == answer["error"]
    event = JournalReader(run.journal).new()[-1].body
    assert (event.reason, event.permanent) == (answer["error"], permanent)


def test_a_submitter_that_hangs_is_a_doubt(tmp_path, monkeypatch):
    run = create_run(config_of(), tmp_path)
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    answer = submit.submit_attempt(run, config_of(), 1, timeout_s=0.2)
    assert isinstance(answer, submit.SubmitFailed)
    assert answer.doubtful
    assert json.loads(run.attempt(1).job.read_text())["job_id"] == ""


def test_run_ids():
    run_id = new_run_id("a" * 40, datetime(2025, 1, 31, 23, 59, 59, tzinfo=UTC), "1a2b")
    assert run_id.endswith("-20250131t235959-1a2b")
    assert RUN_ID.match(run_id)
    assert Path(run_id).name == run_id


def test_the_schedule_is_drawn_before_the_data_is_there(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[run]\nsteps = 50\n[data]\npath = "nowhere"\n[model]\nlayers = 3\n[schedule]\nwarmup = 30\n'
        "[job]\nnodes = 0\n[monitor]\nbeat_s = -1\n"
    )
    done = ciuic("check", recipe, "--plot", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = check("plot", done.stdout)
    assert list(found["groups"]) == ["embedding", "layer-0", "layer-1", "layer-2"]
    assert {len(rates) for rates in found["groups"].values()} == {len(found["tokens"])}
    assert [rates[0] for rates in found["groups"].values()] == [3e-3, 3e-3, 0, 0]
    drawn = ciuic("check", recipe, "--plot", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "layer-2" in drawn.stdout
    assert "⠉" in drawn.stdout
    assert ciuic("check", recipe, cwd=tmp_path).returncode == 78
    bent = ciuic("check", recipe, "--plot", "--set", "schedule.warmup=-1", cwd=tmp_path)
    assert bent.returncode == 78
    assert "schedule.warmup" in bent.stderr
    assert ciuic("check", recipe, "--json", cwd=tmp_path).returncode == 2


def test_the_plot_imports_no_torch(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[run]\nsteps = 5\n")
    program = (
        "import sys; sys.argv[1:] = ['check', sys.argv[1], '--plot', '--json']\n"
        "sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from ciuic import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(recipe)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_run_knows_where_it_lies_whatever_the_recipe_says(tmp_path):
    """Alerts name files by it, and `--root` is not in the recipe."""
    run = create_run(config_of(), tmp_path / "runs")
    assert read_resolved(run.config).run.root == str(tmp_path / "runs")
