"""A job in an image on a real Slurm, with a stand-in for `apptainer`: it notes its options and runs the rest here."""

import os
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Field, losses
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(120)

APPTAINER = """#!/bin/bash
printf '%s\\n' "$@" > "{seen}/$SLURM_PROCID"
while [ "$1" != {image} ]; do shift; done
shift
exec "$@"
"""


def test_every_agent_is_started_through_the_engine(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, seen, image = tmp_path / "bin", tmp_path / "seen", "/images/ciuic.sif"
    programs.mkdir()
    seen.mkdir()
    (programs / "apptainer").write_text(APPTAINER.format(seen=seen, image=image))
    (programs / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    field.root = type(field.root)(path=tmp_path / "runs")  # no mount takes a blank
    field.root.path.mkdir()
    job = {"image": image, "container": "apptainer", "image_python": sys.executable, "mounts": ["/opt"]}
    run = field.submit(field.config(run={"steps": 20}, job=job))
    field.supervise()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(20)
    options = [path.read_text().splitlines() for path in seen.iterdir()]
    assert len(options) == 2
    for words in options:
        assert words[0] == "exec"
        assert f"{field.root.path}:{field.root.path}" in words
        assert words[words.index("--pwd") + 1] == str(run.path)
