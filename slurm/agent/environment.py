"""The environment of a worker. Pure."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract import staged
from contract.config import RunConfig
from contract.control import Control
from contract.evidence import NCCL
from slurm.agent.network import Link
from slurm.node import affinity


def base_environment(
    environment: Mapping[str, str],
    config: RunConfig,
    index: int,
    *,
    local: bool,
    stage: Path | None = None,
) -> dict[str, str]:
    """What all workers of this node and the warm process have in common, read when they start or import.

    The robot's key stays out: it is nobody's business below the supervisor.
    """
    job = config.job
    kept = {
        name: value
        for name, value in environment.items()
        if name not in config.alerts.secrets and not name.startswith("SUBMITIT_")
    }
    defaults = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",  # numpy would leave threads behind, and a fork copies only one
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # otherwise asking for CUDA initialises the driver in the warm process
        "TORCH_FR_BUFFER_SIZE": "256",  # entries of torch's flight recorder, whose dumps must stay small
        "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "share" / "ciuic" / "torch_extensions"),
    }
    devices = {"CUDA_VISIBLE_DEVICES": visible_devices(environment, job.gpus_per_node, index, local=local)}
    if job.gpus_per_node == 0:
        devices["DS_ACCELERATOR"] = "cpu"
    # Unbuffered from the warm process on: a fork's streams are made before its output is a pipe.
    streams = {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
    copies = {} if stage is None else {staged.VARIABLE: str(stage)}
    return defaults | kept | devices | copies | job.environment | streams


def visible_devices(environment: Mapping[str, str], gpus: int, index: int, *, local: bool) -> str:
    """The devices of this node's workers; a worker takes the one with its local rank, whatever its physical number.

    Locally all agents see the same devices and each takes its share; a spare shares with the first.
    """
    if gpus == 0:
        return ""
    given = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    given = given or [str(number) for number in range(gpus)]
    if local:
        start = index * gpus % len(given)
        given = given[start : start + gpus]
    return ",".join(given)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One worker of one generation."""

    run_dir: str
    attempt: int
    generation: int
    node: str
    node_rank: int
    nodes: int
    local_rank: int
    local_world: int
    master: str
    port: int
    page: str
    cpus: str = ""

    @property
    def rank(self) -> int:
        return self.node_rank * self.local_world + self.local_rank


def network_variables(base: Mapping[str, str], link: Link) -> dict[str, str]:
    """What NCCL and Gloo are told of the chosen network; a variable that somebody has set stays."""
    interfaces = {
        "GLOO_SOCKET_IFNAME": link.interface,
        "NCCL_SOCKET_IFNAME": link.nccl or link.interface,
        "NCCL_IB_HCA": link.hcas,
    }
    return {name: value for name, value in interfaces.items() if value and name not in base}


def worker_environment(
    base: Mapping[str, str], place: Placement, control: Control | None, link: Link
) -> dict[str, str]:
    """The variables of one worker in one generation: set after the fork, before any communicator."""
    bounds = (control.min_step, control.max_step) if control else (0, -1)
    windows = [list(window) for window in control.skip_windows] if control else []
    return {
        **base,
        **network_variables(base, link),
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.nodes * place.local_world),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world),
        "LOCAL_SIZE": str(place.local_world),  # DeepSpeed's name for it
        "MASTER_ADDR": place.master,
        "MASTER_PORT": str(place.port),
        "CIUIC_RUN_DIR": place.run_dir,
        "CIUIC_ATTEMPT": str(place.attempt),
        "CIUIC_GENERATION": str(place.generation),
        "CIUIC_NODE": place.node,
        "CIUIC_PAGE": place.page,
        **({affinity.VARIABLE: place.cpus} if place.cpus else {}),
        # A byte in `<prefix><rank>.pipe` has torch write NCCL's flight recorder, whatever the interpreter does.
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": place.page + NCCL,
        "TORCH_FR_DUMP_TEMP_FILE": place.page + NCCL,
        "CIUIC_MIN_STEP": str(bounds[0]),
        "CIUIC_MAX_STEP": str(bounds[1]),
        "CIUIC_SKIP_WINDOWS": json.dumps(windows),
    }
