"""Whether a node is fit to train: the figures of its GPUs, memory, disks and of the shared directory, judged. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_FOREIGN_MIB = 1024  # less is a display, a monitor, a server that shares the device on purpose
_MEMORY = (512 << 20, 0.1)  # bytes below which nothing starts; share of all below which people are told
_SPACE = (64 << 20, 1 << 30)  # of /dev/shm and the temporary directory: the same two
_SLOW_S = 1.0  # one small synced write in the shared directory
_CLOCK_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A process on a GPU that is not ours."""

    gpu: int
    pid: int
    mib: int
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A probe file in the run directory. `offset_s`: how far the server's clock is before ours; None: not known."""

    problem: str = ""
    write_s: float = 0.0
    offset_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was seen. `gpus` as `slurm.agent.devices` gives them; `gpus_problem`: why there are none."""

    gpus_wanted: int = 0
    gpus: Sequence[Mapping[str, Any]] = ()
    gpus_problem: str = ""
    foreign: Sequence[Foreign] = ()
    memory_free: int | None = None
    memory: int | None = None
    space: Mapping[str, int] = field(default_factory=dict)
    shared: Shared = Shared()


@dataclass(frozen=True, kw_only=True)
class Fitness:
    """`problems` keep the node out; `notes` are told."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(seen: Figures) -> Fitness:
    """What speaks against this node, each in a sentence that names the thing and the figure."""
    problems: list[str] = []
    notes: list[str] = []
    for grave, text in (*_gpus(seen), *_memory(seen), *_space(seen), *_shared(seen.shared)):
        (problems if grave else notes).append(text)
    return Fitness(problems=tuple(problems), notes=tuple(notes))


def _gpus(seen: Figures) -> Iterator[tuple[bool, str]]:
    if not seen.gpus_wanted:
        return
    if seen.gpus_problem:
        yield True, seen.gpus_problem
        return
    if len(seen.gpus) < seen.gpus_wanted:
        yield True, f"{len(seen.gpus)} GPUs are there, the job needs {seen.gpus_wanted}"
    for gpu in seen.gpus:
        yield from _gpu(gpu)
    for one in seen.foreign:
        who = (
            f"process {one.pid}{f' ({one.name})' if one.name else ''}, which is not ours, holds {one.mib} MiB"
        )
        yield one.mib >= _FOREIGN_MIB, f"GPU {one.gpu}: {who}"


def _gpu(gpu: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    name = f"GPU {gpu['index']}"
    remapped = gpu.get("remapped") or {}
    if remapped.get("failed"):
        yield True, f"{name}: remapping of faulty memory rows has failed; it must be replaced"
    if remapped.get("pending"):
        yield True, f"{name}: remapped memory rows wait for a reset"
    if gpu.get("recovery_action", "none") != "none":
        yield True, f"{name}: the driver asks for: {gpu['recovery_action']}"
    for what in ("uuid", "memory_used_mib"):  # nothing works on a device that does not even answer these
        if problem := gpu.get(f"{what}_problem"):
            yield True, f"{name}: {problem}"
    if gpu.get("ecc_uncorrected"):
        yield False, f"{name}: {gpu['ecc_uncorrected']} uncorrected memory errors since the driver was loaded"
    if slowdown := gpu.get("slowdown"):
        yield False, f"{name}: its clock is lowered: {', '.join(slowdown)}"


def _memory(seen: Figures) -> Iterator[tuple[bool, str]]:
    if seen.memory_free is None or seen.memory is None:
        return
    least, share = _MEMORY
    if seen.memory_free < max(least, share * seen.memory):
        text = f"{_gb(seen.memory_free)} of {_gb(seen.memory)} memory are free"
        yield seen.memory_free < least, text


def _space(seen: Figures) -> Iterator[tuple[bool, str]]:
    least, few = _SPACE
    for place, free in seen.space.items():
        if free < few:
            yield free < least, f"{place} has {_gb(free)} free"


def _shared(shared: Shared) -> Iterator[tuple[bool, str]]:
    if shared.problem:
        yield True, f"the run directory cannot be used: {shared.problem}"
        return
    if shared.write_s > _SLOW_S:
        yield False, f"a small synced write in the run directory takes {shared.write_s:.1f} s"
    if shared.offset_s is not None and abs(shared.offset_s) > _CLOCK_S + shared.write_s:
        side = "behind" if shared.offset_s > 0 else "before"
        yield False, f"the clock is {abs(shared.offset_s):.1f} s {side} that of the file server"


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
