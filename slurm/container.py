"""How a job's agents come to run inside an image: options of srun for pyxis, a command before Python for Apptainer."""

import shlex
from pathlib import Path

from contract.config import RunConfig
from contract.config.data import in_storage
from contract.layout import RunDir

# Paths of the node: in the image other ones are right.
NOT_INSIDE = frozenset({"LD_LIBRARY_PATH", "VIRTUAL_ENV"})


def inside(config: RunConfig, root: Path) -> list[str]:
    """The directories of a run that the container must see, under the same path as outside."""
    data = [its.path for its in config.data.sources if its.path and not in_storage(its.path)]
    model = [config.model.init_from, config.model.hf_config]
    # A stage with a variable in it is known on the node only: its disk is then to be named in [job] mounts.
    stage = [config.node.stage] if "$" not in config.node.stage else []
    wanted = (str(root), *data, *model, *stage, config.backup.directory)
    return list(dict.fromkeys(path for path in wanted if path.startswith("/")))


def _mounts(config: RunConfig, run: RunDir) -> list[str]:
    pairs = [f"{path}:{path}" for path in inside(config, run.path.parent)]
    return [*pairs, *(mount if ":" in mount else f"{mount}:{mount}" for mount in config.job.mounts)]


def srun_options(config: RunConfig, run: RunDir) -> list[str]:
    """For pyxis; none otherwise."""
    job = config.job
    if not job.image or job.container != "pyxis":
        return []
    return [
        f"--container-image={job.image}",
        f"--container-mounts={','.join(_mounts(config, run))}",
        f"--container-workdir={run.path}",
        "--no-container-mount-home",  # packages in a home directory are not those of the image
        "--no-container-entrypoint",
    ]


def python(config: RunConfig, run: RunDir, here: str) -> str:
    """The shell's words that start Python on the node; `here` is ours, for a job without an image."""
    job = config.job
    if not job.image:
        return shlex.join([here, "-P"])
    words = [job.image_python, "-P"]
    if job.container == "apptainer":
        gpus = ["--nv"] if job.gpus_per_node else []
        binds = [word for mount in _mounts(config, run) for word in ("--bind", mount)]
        words = ["apptainer", "exec", *gpus, "--no-home", *binds, "--pwd", str(run.path), job.image, *words]
    return shlex.join(words)
