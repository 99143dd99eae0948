"""Which CPUs are beside which GPU, and where the workers of a node should run. Pure but for the reading of sysfs."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slurm.node.tree import Tree, read

VARIABLE = "CIUIC_CPUS"
"""Tells the starter of a worker where it should run."""
# The numbers of the job's GPUs on the node, where a control group hides the others and counts anew.
_OF_THE_JOB = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def parsed(text: str) -> frozenset[int]:
    """The CPUs in the kernel's notation (`0-3,8`); empty for what is none."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text.strip()):
        return frozenset()
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def written(cpus: Collection[int]) -> str:
    """The same, shortest."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def beside_gpus(root: Path) -> list[frozenset[int]]:
    """For each GPU, in PCI order as NVML and CUDA count equal ones, the CPUs of its side; empty where nothing tells."""
    tree = Tree.at(root)
    return [parsed(read(tree.files[gpu.path[-1]] / "local_cpulist") or "") for gpu in tree.gpus()]


def of_workers(
    beside: Sequence[Collection[int]],
    environment: Mapping[str, str],
    ranks: int,
    allowed: Collection[int],
) -> tuple[str, ...]:
    """For each worker the CPUs of its GPU's side as far as the job has them; "" leaves it where the job is.

    `environment`: the workers', with CUDA_VISIBLE_DEVICES; a worker takes the device with its local rank.
    """
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    for name in _OF_THE_JOB:
        numbers = [item for item in environment.get(name, "").split(",") if item]
        if len(numbers) == len(visible):
            visible = numbers
            break
    if not all(name.isdecimal() and int(name) < len(beside) for name in visible):  # by UUID, or parts of GPUs
        return ("",) * ranks
    found = []
    for rank in range(ranks):
        near = set(beside[int(visible[rank])]) & set(allowed) if rank < len(visible) else set()
        found.append(written(near) if near and near != set(allowed) else "")
    return tuple(found)
