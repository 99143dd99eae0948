"""Each node with its two neighbours in a ring: an all-gather and a matrix product, compared. One rank a node.

    python -P -m trainer.measure.pairs BACKEND NODE [LIMIT_S]

Rank 0 prints one line of JSON: what everybody saw, which slurm.node.pairing judges. A rank that does not meet the others
within a third of the limit prints {"missing": ranks that did not come, "said": why}.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from contract.states import ExitCode
from trainer.errors import RendezvousError
from trainer.measure.group import LIMIT_S, gathered, join, settle

_BYTES = 8 << 20
_SIDES = {"cpu": 512, "cuda": 4096}  # of the product: some milliseconds
_PRODUCTS = 8
_GATHERS = 8  # at most, and as many as half a second allows
_GATHERS_S = 0.5
_LOOKS = 5  # what seems slow is looked at again: something else may have run there
_PAUSE_S = 1.0  # before that: what disturbed the first one may be over
_ALIKE = 0.7  # of the best pair's bandwidth: no second look

Edge = tuple[int, int]


def rounds(world: int) -> list[list[Edge]]:
    """The edges of the ring in rounds in which no rank is asked twice: two, or three when the number is odd."""
    if world == 2:
        return [[(0, 1)]]
    edges = [(one, (one + 1) % world) for one in range(world)]
    last = edges.pop() if world % 2 else None
    found = [edges[0::2], edges[1::2]]
    return [*found, [last]] if last else found


def product(device: torch.device) -> tuple[float, float]:
    """(seconds, sum) of a product of whole numbers, which any sound device gets exactly right.

    On a CPU it is the processor's time: what else runs there says nothing about the node.
    """
    side, cpu = _SIDES[device.type], device.type == "cpu"
    clock = time.thread_time if cpu else time.perf_counter
    numbers = torch.arange(side * side, device=device).reshape(side, side)
    left, right = (numbers % 7).float(), (numbers % 5).float()
    best, total = float("inf"), 0.0
    weights = (torch.arange(side, device=device) % 11).double()
    for _ in range(_PRODUCTS):
        settle(device)
        begun = clock()
        found = torch.matmul(left, right)
        settle(device)
        best = min(best, clock() - begun)
        total = float((found.double() @ weights).sum())
    return best, total


def products(device: torch.device) -> tuple[float, float]:
    """(the slowest's seconds, a sum that is another one when any is wrong) of all devices of this node."""
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    devices = [torch.device("cuda", number) for number in range(count)] if device.type == "cuda" else [device]
    found = [product(one) for one in devices]
    # Nodes have as many devices as each other; a wrong one shows whichever it is.
    return max(seconds for seconds, _ in found), max(total for _, total in found) + min(t for _, t in found)


def _segments() -> tuple[int, int]:
    """(sent, sent again) by TCP in this network namespace."""
    names, values = (
        line.split()
        for line in Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
        if line.startswith("Tcp:")
    )
    counts = dict(zip(names, values, strict=True))
    return int(counts["OutSegs"]), int(counts["RetransSegs"])


def meet(group: Any, device: torch.device, total: float, *, connected: bool) -> dict[str, Any]:
    """What the two of a pair see of each other."""
    mine = torch.full((_BYTES // 4,), 1.0, device=device)
    both = torch.zeros(2 * mine.numel(), device=device)
    totals = _both(total, group, device)
    sent, again = _segments()
    if not connected:
        _gather(both, mine, group, device)
    first = max(_both(_gather(both, mine, group, device), group, device))
    times = min(_GATHERS, int(_GATHERS_S / first))
    # The shortest: what else runs on a node makes some of them longer.
    best = min([first, *(_gather(both, mine, group, device) for _ in range(times))])
    sent_now, again_now = _segments()
    return {
        "bytes_per_s": _BYTES / best,
        "lost": (again_now - again) / max(1, sent_now - sent),
        "differs": totals[0] != totals[1] or not bool((both == 1.0).all()),
    }


def _both(value: float, group: Any, device: torch.device) -> list[float]:
    """This number of both."""
    found = [torch.zeros(1, dtype=torch.float64, device=device) for _ in range(2)]
    dist.all_gather(found, torch.tensor([value], dtype=torch.float64, device=device), group=group)
    return [float(one) for one in found]


def _gather(both: torch.Tensor, mine: torch.Tensor, group: Any, device: torch.device) -> float:
    settle(device)
    begun = time.perf_counter()
    dist.all_gather_into_tensor(both, mine, group=group)
    settle(device)
    return time.perf_counter() - begun


def better(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Of two looks at a pair: what was ever wrong is wrong, and nothing is slow or lossy that once was not."""
    return {
        "bytes_per_s": max(one["bytes_per_s"], other["bytes_per_s"]),
        "lost": min(one["lost"], other["lost"]),
        "differs": one["differs"] or other["differs"],
    }


def look_at_neighbours(rank: int, world: int, device: torch.device, total: float) -> dict[Edge, Any]:
    """What this rank saw of its pairs; all ranks look equally often."""
    groups = [{edge: dist.new_group(list(edge)) for edge in edges} for edges in rounds(world)]
    seen: dict[Edge, Any] = {}
    for number in range(_LOOKS):
        if number:
            time.sleep(_PAUSE_S)
        for together in groups:
            dist.barrier()
            for edge, group in together.items():
                if rank in edge:
                    found = meet(group, device, total, connected=edge in seen)
                    seen[edge] = better(seen[edge], found) if edge in seen else found
        speeds = [
            speed for one in gathered([s["bytes_per_s"] for s in seen.values()], world) for speed in one
        ]
        if min(speeds) >= _ALIKE * max(speeds):
            break
    return seen


def main(arguments: Sequence[str]) -> int:
    """All rounds; then everybody's figures to rank 0."""
    backend, node, *rest = arguments
    try:
        rank, world, device = join(backend, patience_s=float(rest[0]) / 3 if rest else LIMIT_S)
    except RendezvousError as error:
        _say({"missing": error.missing, "said": str(error)})
        sys.stderr.write(f"{error}\n")
        return ExitCode.FAILED
    seconds, total = products(device)
    seen = look_at_neighbours(rank, world, device, total)
    mine = [{"pair": list(edge), **found} for edge, found in seen.items()]
    everybody = gathered({"node": node, "product_s": seconds, "seen": mine}, world)
    if rank == 0:
        _say(everybody)
    dist.barrier()
    dist.destroy_process_group()
    return ExitCode.FINISHED


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
