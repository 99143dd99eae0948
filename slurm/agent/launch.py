"""Start the workers of this node in one generation."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.config import RunConfig
from contract.control import Control, Go
from slurm.agent.crew import Crew
from slurm.agent.environment import Placement, worker_environment
from slurm.agent.network import Link
from slurm.agent.output import NodeLog, WorkerOutput
from slurm.agent.worker import new_worker
from slurm.node.affinity import beside_gpus, of_workers

_BACKLOG = 4096


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything that the workers of one generation are started with. `cpus`: by local rank, () leaves them alone."""

    go: Go
    control: Control | None
    run_dir: Path
    node: str
    ranks_per_node: int
    pages: Path
    link: Link
    log: NodeLog
    cpus: tuple[str, ...] = ()


def cpus_of(config: RunConfig, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where each worker of this node is to run; () where that is nobody's business: no GPUs, or [node] says so."""
    if not config.node.bind_cpus or not config.job.gpus_per_node:
        return ()
    beside = beside_gpus(Path("/sys"))
    return of_workers(beside, environment, config.job.ranks_per_node, os.sched_getaffinity(0))


def start_workers(crew: Crew, launch: Launch, listener: socket.socket | None, now: float) -> None:
    """Start all of them. Rank 0 takes over the listening socket, or finds its port free."""
    heads = launch.go.members[0] == launch.node
    hand_over = heads and crew.program.takes_socket and listener is not None
    if listener is not None and not hand_over:
        listener.close()  # right before the start: rank 0 of a program that binds the port itself needs it free
    if hand_over and listener is not None:
        listener.listen(_BACKLOG)
    for local_rank in range(launch.ranks_per_node):
        place = _place(launch, local_rank)
        output = WorkerOutput(launch.log, launch.go.generation, place.rank)
        worker = new_worker(Path(place.page), output, rank=place.rank, local_rank=local_rank, now=now)
        environment = worker_environment(crew.environment, place, launch.control, launch.link)
        master = listener.fileno() if hand_over and listener is not None and place.rank == 0 else None
        crew.start(worker, environment, master=master)
    if hand_over and listener is not None:
        listener.close()  # the worker's copy lives: it must close with rank 0, not with us


def _place(launch: Launch, local_rank: int) -> Placement:
    return Placement(
        run_dir=str(launch.run_dir),
        attempt=launch.go.attempt,
        generation=launch.go.generation,
        node=launch.node,
        node_rank=launch.go.members.index(launch.node),
        nodes=len(launch.go.members),
        local_rank=local_rank,
        local_world=launch.ranks_per_node,
        master=launch.go.master,
        port=launch.go.port,
        page=str(launch.pages / f"{launch.node}-{local_rank}"),
        cpus=launch.cpus[local_rank] if launch.cpus else "",
    )
