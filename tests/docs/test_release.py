"""What is released works where no checkout is, and names what it builds on."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_package_that_is_asked_for_is_in_the_notices() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = [found[0] for line in asked if (found := re.match(r"[\w.-]+", line))]
    notices = (ROOT / "THIRD-PARTY.md").read_text()
    assert not [name for name in names if f"| {name} |" not in notices]


@pytest.mark.slow
def test_wheel_and_sdist_work_outside_the_checkout(tmp_path) -> None:
    source = tmp_path / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]
    for name in tracked:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())

    def run(*command, cwd=tmp_path):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    make = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    run(sys.executable, "-c", make, cwd=source)
    [wheel], [sdist] = (source / "dist").glob("*.whl"), (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {
        "supervisor/supervisor.service",
        "supervisor/diagnose/catalogue/gpu.toml",
        "supervisor/page/static/index.html",
        "supervisor/page/static/app.js",
        "LICENSE",
        "THIRD-PARTY.md",
    } <= inside

    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    [site] = place.glob("lib/*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site / "shared.pth").write_text("\n".join(shared) + "\n")
    run(
        place / "bin/python",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        wheel,
    )
    where = run(
        place / "bin/python",
        "-P",
        "-c",
        "import contract, supervisor; print(contract.__file__, supervisor.__file__)",
    )
    assert all(str(place) in path for path in where.split())
    assert "doctor" in run(place / "bin/ciuic", "--help")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[run]\nsteps = 1\n[job]\nexecutor = "slurm"\ncommand = ["true"]\n')
    assert "in order" in run(place / "bin/ciuic", "check", recipe)
    assert "#SBATCH" in run(place / "bin/ciuic", "submit", "--dry-run", recipe)
    assert "gpu-oom" in run(
        place / "bin/ciuic", "diagnose", ROOT / "tests/data/logs/accelerate-oom.log", "--json"
    )
