"""Bandwidth of collectives by size, as nccl-tests define it.

    python -P -m trainer.measure.collectives BACKEND SECONDS NAMES SIZE…      # rank 0 prints one line of JSON

With S bytes, n ranks and t seconds: algorithm bandwidth S/t; bus bandwidth S/t · 2(n-1)/n for all-reduce and
S/t · (n-1)/n for the others (nccl-tests, doc/PERFORMANCE.md). S is the whole buffer: for all-gather what everybody has
at the end, for reduce-scatter and all-to-all what everybody has at the start.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from trainer.measure.group import gathered, join, settle

_WARM_UP = 3
_MOST = 200


def _all_reduce(elements: int, _world: int, device: torch.device) -> Callable[[], Any]:
    data = torch.zeros(elements, device=device)
    return lambda: dist.all_reduce(data)


def _all_gather(elements: int, world: int, device: torch.device) -> Callable[[], Any]:
    mine, all_of_it = torch.zeros(elements // world, device=device), torch.zeros(elements, device=device)
    return lambda: dist.all_gather_into_tensor(all_of_it, mine)


def _reduce_scatter(elements: int, world: int, device: torch.device) -> Callable[[], Any]:
    mine, all_of_it = torch.zeros(elements // world, device=device), torch.zeros(elements, device=device)
    return lambda: dist.reduce_scatter_tensor(mine, all_of_it)


def _all_to_all(elements: int, _world: int, device: torch.device) -> Callable[[], Any]:
    given, taken = torch.zeros(elements, device=device), torch.zeros(elements, device=device)
    return lambda: dist.all_to_all_single(taken, given)


COLLECTIVES = {
    "all-reduce": (_all_reduce, 2.0),
    "all-gather": (_all_gather, 1.0),
    "reduce-scatter": (_reduce_scatter, 1.0),
    "all-to-all": (_all_to_all, 1.0),
}


def bandwidths(size: int, seconds: float, world: int, factor: float) -> tuple[float, float]:
    """(algorithm, bus) bandwidth in bytes per second."""
    algorithm = size / seconds
    return algorithm, algorithm * factor * (world - 1) / world


def measure(name: str, size: int, world: int, device: torch.device, seconds: float) -> dict[str, Any]:
    """One row. Every rank times the same number of calls, all begin together, nothing is left in a queue."""
    make, factor = COLLECTIVES[name]
    elements = max(1, size // 4 // world) * world
    call = make(elements, world, device)
    for _ in range(_WARM_UP):
        call()
    settle(device)
    begun = time.perf_counter()
    call()
    settle(device)
    counts = gathered(max(1, min(_MOST, int(seconds / (time.perf_counter() - begun)))), world)
    times = counts[0]
    dist.barrier()
    settle(device)
    begun = time.perf_counter()
    for _ in range(times):
        call()
    settle(device)
    ranks = gathered((time.perf_counter() - begun) / times, world)
    mean = statistics.fmean(ranks)
    algorithm, bus = bandwidths(elements * 4, mean, world, factor)
    return {
        "collective": name,
        "bytes": elements * 4,
        "calls": times,
        "seconds": mean,
        "fastest_rank_s": min(ranks),
        "slowest_rank_s": max(ranks),
        "slowest_rank": ranks.index(max(ranks)),
        "algorithm_bytes_per_s": algorithm,
        "bus_bytes_per_s": bus,
    }


def main(arguments: Sequence[str]) -> int:
    """Measure all of them at each size."""
    backend, seconds, names, *sizes = arguments
    rank, world, device = join(backend)
    rows = [
        measure(name, int(size), world, device, float(seconds)) for name in names.split(",") for size in sizes
    ]
    if rank == 0:
        sys.stdout.write(json.dumps({"backend": backend, "ranks": world, "rows": rows}) + "\n")
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
