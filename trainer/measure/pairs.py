"""Each node with its two neighbours in a ring: an all-gather and a matrix product, compared. One rank a node.

python -P -m trainer.measure.pairs BACKEND NODE [BYTES]      # rank 0 prints one line of JSON; slurm.node.pairing judges
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.measure.group import gathered, join, settle

_BYTES = 8 << 20
_SIDE = 512
_TIMES = 4


def rounds(world: int) -> list[list[tuple[int, int]]]:
    """The edges of the ring in rounds in which no rank is asked twice: two, or three when the number is odd."""
    if world == 2:
        return [[(0, 1)]]
    edges = [(one, (one + 1) % world) for one in range(world)]
    last = edges.pop() if world % 2 else None
    found = [edges[0::2], edges[1::2]]
    return [*found, [last]] if last else found


def product(device: torch.device) -> tuple[float, float]:
    """(seconds, sum) of a product of whole numbers, which any sound device gets exactly right."""
    numbers = torch.arange(_SIDE * _SIDE, device=device).reshape(_SIDE, _SIDE)
    left, right = (numbers % 7).float(), (numbers % 5).float()
    best, total = float("inf"), 0.0
    weights = (torch.arange(_SIDE, device=device) % 11).double()
    for _ in range(_TIMES):
        settle(device)
        begun = time.perf_counter()
        found = torch.matmul(left, right)
        settle(device)
        best = min(best, time.perf_counter() - begun)
        total = float((found.double() @ weights).sum())
    return best, total


def _segments() -> tuple[int, int]:
    """(sent, sent again) by TCP in this network namespace."""
    names, values = (
        line.split()
        for line in Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
        if line.startswith("Tcp:")
    )
    counts = dict(zip(names, values, strict=True))
    return int(counts["OutSegs"]), int(counts["RetransSegs"])


def meet(group: Any, device: torch.device, size: int, total: float) -> dict[str, Any]:
    """What the two of a pair see of each other."""
    mine = torch.full((size // 4,), 1.0, device=device)
    both = torch.zeros(2 * mine.numel(), device=device)
    sums = [torch.zeros(1, dtype=torch.float64, device=device) for _ in range(2)]
    dist.all_gather(sums, torch.tensor([total], dtype=torch.float64, device=device), group=group)
    sent, again = _segments()
    best = float("inf")  # the shortest: what else runs on a node makes some of them longer
    for _ in range(_TIMES):
        settle(device)
        begun = time.perf_counter()
        dist.all_gather_into_tensor(both, mine, group=group)
        settle(device)
        best = min(best, time.perf_counter() - begun)
    sent_now, again_now = _segments()
    whole = bool((both == 1.0).all())
    return {
        "bytes_per_s": size / best,
        "lost": (again_now - again) / max(1, sent_now - sent),
        "differs": float(sums[0]) != float(sums[1]) or not whole,
    }


def main(arguments: Sequence[str]) -> int:
    """All rounds; then everybody's figures to rank 0."""
    backend, node, *rest = arguments
    size = int(rest[0]) if rest else _BYTES
    rank, world, device = join(backend)
    seconds, total = product(device)
    seen: list[dict[str, Any]] = []
    for edges in rounds(world):
        groups = {edge: dist.new_group(list(edge)) for edge in edges}  # a call for all, members or not
        dist.barrier()
        for edge, group in groups.items():
            if rank in edge:
                seen.append({"pair": list(edge), **meet(group, device, size, total)})
    everybody = gathered({"node": node, "product_s": seconds, "seen": seen}, world)
    if rank == 0:
        sys.stdout.write(json.dumps(everybody) + "\n")
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
