"""The image's recipe and its job, as far as they can be looked at without a container engine."""

import fnmatch
import re
from pathlib import Path

import pytest

from contract.config import ConfigError, RunConfig, parse
from contract.layout import RunDir
from slurm.container import inside
from slurm.create import submission_problems
from slurm.request import build_request

HERE = Path(__file__).resolve().parents[2]
RECIPE = (HERE / "image" / "Dockerfile").read_text()
RUN = RunDir(path=Path("/shared/runs/t"))


def config(**job) -> RunConfig:
    job = {"executor": "slurm", "command": ["x"], "image": "/i.sqsh", **job}
    sections = {"run": {"name": "t", "steps": 1}, "job": job, "data": {"path": "/shared/data"}}
    return parse(sections, source="t", bases=())


def test_what_is_copied_is_there_and_not_ignored() -> None:
    let_through = [
        line[1:] for line in (HERE / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    copied = [name for line in re.findall(r"^COPY (.+)$", RECIPE, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (HERE / name).exists()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in let_through), name


def test_nothing_of_this_machine_and_no_index_address() -> None:
    assert not re.search(r"https?://|--index-url|--trusted-host", RECIPE)
    assert str(HERE) not in RECIPE


def test_the_image_has_python_where_the_job_looks_for_it() -> None:
    assert f"{Path(RunConfig().job.image_python).parents[1]}" == "/opt/ciuic"
    assert "python3 -m venv /opt/ciuic" in RECIPE
    assert "TORCH_EXTENSIONS_DIR=/opt/ciuic/share/ciuic/torch_extensions" in RECIPE


def test_paths_of_the_node_do_not_go_inside() -> None:
    assert {"PATH", "SLURM_CONF"} <= set(build_request(RUN, config(), 1).export)
    assert not {"LD_LIBRARY_PATH", "VIRTUAL_ENV"} & set(build_request(RUN, config(), 1).export)
    assert "VIRTUAL_ENV" in build_request(RUN, config(image=""), 1).export


def test_what_the_container_sees() -> None:
    assert inside(config(), Path("/shared/runs")) == ["/shared/runs", "/shared/data"]
    request = build_request(RUN, config(mounts=["/scratch", "/a:/b"]), 1)
    (mounts,) = [option for option in request.container if option.startswith("--container-mounts=")]
    assert mounts.endswith("/shared/data:/shared/data,/scratch:/scratch,/a:/b")
    assert build_request(RUN, config(image=""), 1).container == ()


@pytest.mark.parametrize("job", [{"executor": "local"}, {"mounts": ["relative"]}, {"mounts": ["/a,/b"]}])
def test_what_is_refused(job: dict) -> None:
    with pytest.raises(ConfigError):
        config(**job)


def test_a_path_that_no_mount_takes_is_refused_before_the_job() -> None:
    (problem,) = submission_problems(config(), Path("/shared/my runs"))
    assert problem.where == "job.image"
