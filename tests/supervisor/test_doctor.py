"""`ciuic doctor` as a person calls it, on this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from supervisor.doctor.examine import examine
from supervisor.doctor.finding import State
from tests.supervisor.schemas import check


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CIUIC_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "ciuic", "doctor", *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=kept | environment,
    )


def test_it_examines_this_machine_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = doctor("--root", str(tmp_path), "--json", SLURM_CONF=str(tmp_path / "none"))
    found = {item["id"]: item for item in check("doctor", done.stdout)["findings"]}
    assert found["storage.lock"]["state"] == found["storage.create"]["state"] == "ok"
    assert "ms (median" in found["storage.fsync"]["what"]
    assert {"machine.memlock-limit", "machine.clock", "packages.torch", "machine.py-spy"} <= set(found)
    assert done.returncode == any(item["state"] == "fail" for item in found.values())
    assert all(item["why"] and item["fix"] for item in found.values() if item["state"] in {"fail", "warn"})
    assert list(tmp_path.iterdir()) == []


def test_a_test_message_is_sent_only_when_asked_for(tmp_path: Path, robot) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[run]\nsteps = 1\n[job]\ncommand = ["true"]\n[alerts.wecom]\nbase_url = "{robot.url}"\n'
    )
    asked = doctor(
        "--config", str(recipe), "--root", str(tmp_path), "--alert", "--copies", CIUIC_WECOM_KEY=robot.key
    )
    assert "delivered" in asked.stdout
    assert "asks for no copies" in asked.stdout
    assert len(robot.messages) == 1
    assert robot.key not in asked.stdout
    assert doctor("--alert").returncode == 2


def test_a_recipe_with_problems_is_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[job]\nnodes = 0\n")
    assert doctor("--config", str(recipe)).returncode == 78


def test_a_probe_that_hangs_costs_its_limit_only(tmp_path: Path) -> None:
    hanging = tmp_path / "recipe.toml"
    os.mkfifo(hanging)  # reading it waits for ever
    began = time.monotonic()
    (finding,) = examine(["packages"], tmp_path, hanging, limit_s=3.0)
    assert finding.state is State.FAIL
    assert "no answer within 3 s" in finding.what
    assert time.monotonic() - began < 30
