"""The process group of a measurement, from torchrun's variables."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.rendezvous import meet
from trainer.worker import worker_from_environment

LIMIT_S = 120.0


def join(backend: str, *, patience_s: float = LIMIT_S) -> tuple[int, int, torch.device]:
    """(rank, ranks, device) once all are there.

    Raises:
        RendezvousError: a rank is missing, or cannot reach rank 0.
    """
    worker = worker_from_environment(os.environ, Path())
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", worker.local_rank)
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # the processor time of a product is then that of this thread
    timeout = timedelta(seconds=LIMIT_S)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has a store of its own, which the variables describe
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(
            backend,
            store=meet(worker, patience_s=patience_s, timeout=timeout),
            rank=worker.rank,
            world_size=worker.world_size,
            timeout=timeout,
        )
    return worker.rank, worker.world_size, device


def settle(device: torch.device) -> None:
    """Wait for what the device still has to do: a call returns when it is queued, not when it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gathered(value: Any, world: int) -> list[Any]:
    """Everybody's value, by rank."""
    found: list[Any] = [None] * world
    dist.all_gather_object(found, value)
    return found
