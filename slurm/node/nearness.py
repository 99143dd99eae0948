"""Which HCAs sit beside the GPUs, by their places on PCI. Pure."""

from collections.abc import Sequence
from enum import IntEnum

from slurm.node.machine import Hca, Place


class Distance(IntEnum):
    """Between two PCI devices, in the words of `nvidia-smi topo -m`; smaller is nearer."""

    PIX = 0  # one switch between them
    PXB = 1  # several switches under one root port
    PHB = 2  # the same root complex
    NODE = 3  # the same NUMA node
    SYS = 4


def distance(one: Place, other: Place) -> Distance:
    """SYS also where the tree does not tell."""
    shared = 0
    for mine, theirs in zip(one.path[:-1], other.path[:-1], strict=False):
        if mine != theirs:
            break
        shared += 1
    # path[0] is the root bus, path[1] the port below it: more than the root bus in common means a switch.
    if shared >= 2:
        hops = max(len(one.path), len(other.path)) - shared
        return Distance.PIX if hops <= 2 else Distance.PXB
    if shared == 1:
        return Distance.PHB
    return Distance.NODE if one.numa == other.numa >= 0 else Distance.SYS


def beside(gpus: Sequence[Place], hcas: Sequence[Hca]) -> tuple[frozenset[str], Distance] | None:
    """The HCAs that belong to the GPUs, and how near they are; None where the topology does not single any out.

    HCAs under the same switch as a GPU are meant for it: of several, the nearest. Without such, those at the GPUs'
    root complexes, if that holds for half of the GPUs at least: with less it is chance, and the others would idle.
    Else those on the GPUs' NUMA nodes.
    """
    nearest: dict[Distance, set[str]] = {level: set() for level in Distance}
    reached = dict.fromkeys(Distance, 0)
    for gpu in gpus:
        distances = {hca.name: distance(gpu, hca.place) for hca in hcas}
        level = min(distances.values(), default=Distance.SYS)
        nearest[level] |= {name for name, far in distances.items() if far == level}
        reached[level] += 1
    behind_switch = nearest[Distance.PIX] | nearest[Distance.PXB]
    if behind_switch:
        return frozenset(behind_switch), Distance.PIX if nearest[Distance.PIX] else Distance.PXB
    if reached[Distance.PHB] * 2 >= len(gpus) > 0:
        return frozenset(nearest[Distance.PHB]), Distance.PHB
    nodes = {gpu.numa for gpu in gpus} - {-1}
    near = frozenset(hca.name for hca in hcas if hca.place.numa in nodes)
    return (near, Distance.NODE) if near else None
