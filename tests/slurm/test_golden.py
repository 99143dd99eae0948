"""The sbatch script of every recipe, kept under tests/data/sbatch: a change of what is asked of Slurm shows as a diff.

`python -P tests/slurm/test_golden.py` writes them anew.
"""

import shlex
import sys
from pathlib import Path

import pytest

from contract.config import load
from contract.layout import RunDir
from slurm.submit import render_dry_run

HERE = Path(__file__).resolve().parents[2]
RECIPES = sorted((HERE / "configs").glob("*.toml"))
KEPT = HERE / "tests" / "data" / "sbatch"


def script(recipe: Path) -> str:
    """As on every machine: the run lies under /shared, Python is PYTHON. The data need not be there."""
    config = load(recipe, ["job.command=['any']"])
    text = render_dry_run(RunDir(path=Path("/shared/runs") / f"{config.run.name}-dry-run"), config)
    return text.replace(shlex.quote(sys.executable), "PYTHON")


IN_IMAGES = {
    "in-pyxis": ["job.image=/shared/images/ciuic.sqsh"],
    "in-apptainer": [
        "job.image=/shared/images/ciuic.sif",
        "job.container=apptainer",
        "job.mounts=['/scratch', '/a:/b']",
    ],
}


def in_image(settings: list[str]) -> str:
    """The job of one recipe in a container."""
    sets = ["job.command=['any']", "data.path=/shared/data/tokens", "node.stage=/nvme", *settings]
    config = load(HERE / "configs" / "infiniband-16nodes.toml", sets)
    return render_dry_run(RunDir(path=Path("/shared/runs/dry-run")), config)


@pytest.mark.parametrize("name", IN_IMAGES)
def test_the_script_of_a_job_in_an_image(name: str) -> None:
    text = in_image(IN_IMAGES[name])
    assert text == (KEPT / f"{name}.sh").read_text()
    assert sys.executable not in text, "no Python of this machine"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_script_is_the_one_that_is_kept(recipe: Path) -> None:
    kept = KEPT / f"{recipe.stem}.sh"
    assert kept.exists(), f"new recipe: run python -P {Path(__file__).relative_to(HERE)}, and look at {kept}"
    assert script(recipe) == kept.read_text()


def test_nothing_is_kept_for_recipes_that_are_gone() -> None:
    assert {path.stem for path in KEPT.glob("*.sh")} == {recipe.stem for recipe in RECIPES} | set(IN_IMAGES)


if __name__ == "__main__":
    for each in RECIPES:
        (KEPT / f"{each.stem}.sh").write_text(script(each))
    for name, settings in IN_IMAGES.items():
        (KEPT / f"{name}.sh").write_text(in_image(settings))
