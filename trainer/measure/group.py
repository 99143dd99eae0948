"""The process group of a measurement, from torchrun's variables."""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

LIMIT = timedelta(seconds=120)


def join(backend: str) -> tuple[int, int, torch.device]:
    """(rank, ranks, device) once all are there."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, rank=rank, world_size=world, timeout=LIMIT)
    return rank, world, device


def settle(device: torch.device) -> None:
    """Wait for what the device still has to do: a call returns when it is queued, not when it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gathered(value: Any, world: int) -> list[Any]:
    """Everybody's value, by rank."""
    found: list[Any] = [None] * world
    dist.all_gather_object(found, value)
    return found
