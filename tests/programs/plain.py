"""A plain script as for torchrun: it knows nothing of ciuic."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

out, steps = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
out.mkdir(exist_ok=True, parents=True)
saved = sorted(out.glob("model_*.pt"))
weight = torch.zeros(4)
begin = 0
if saved:
    state = torch.load(saved[-1])
    weight, begin = state["weight"], state["step"]
print(f"begins at step {begin}", flush=True)
for step in range(begin + 1, steps + 1):
    gradient = torch.full((4,), float(rank + 1))
    dist.all_reduce(gradient)
    weight = weight - 0.1 * gradient
    time.sleep(0.05)
    if step % 20 == 0 and rank == 0:
        torch.save({"weight": weight, "step": step}, out / "saving.tmp")
        (out / "saving.tmp").rename(out / f"model_{step:06d}.pt")
    dist.barrier()
dist.destroy_process_group()
