"""Evidence: where the processes of a generation stand, kept before anything of it is killed.

The agent of each node writes `attempts/N/evidence/gNNNN/<node>.json`; the supervisor reads them and says in two lines
what they mean. A worker helps by two files beside its page (see `trainer.evidence`); any program may do the same.
"""

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract import files

VERSION = 1
STACK_SIGNAL = signal.SIGUSR2  # a worker that catches it writes its Python stacks into STACKS
STACKS = ".stacks"  # what follows the page's path: stacks written by faulthandler
WAKE = ".wake"  # a FIFO: a byte in it asks for the flight recorder's entries
FLIGHT = ".flight"  # those entries, as JSON
NCCL = ".nccl-"  # prefix of torch's own FIFO and dump for NCCL (rank and `.pipe` follow)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """`file` as the interpreter knows it, "" for a frame of native code; then `name` is the symbol."""

    name: str
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """`step.py:88`, "" for native code."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One thread's stack, innermost frame first. `active`: on a CPU when it was looked at."""

    name: str
    frames: tuple[Frame, ...]
    active: bool = False


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One entry of a rank's flight recorder. `done`: this rank has seen it complete. `at`: UTC seconds of the call."""

    group: str
    ranks: tuple[int, ...]  # of the group; () where the recorder does not tell
    seq: int
    name: str
    sizes: str
    done: bool
    at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class WorkerEvidence:
    """One worker that was alive. `source`: how its stacks were taken, "" when they could not be; then `problem`.

    The main thread comes first. `flight`: why there are no `collectives`, "" when there are.
    """

    rank: int
    pid: int
    phase: str = ""
    step: int = -1
    os_state: str = ""
    source: str = ""
    problem: str = ""
    threads: tuple[Thread, ...] = ()
    collectives: tuple[Collective, ...] = ()
    flight: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeEvidence:
    """What one node's agent kept. `gpus`: NVML's figures of each device; `problems`: what could not be collected."""

    node: str
    attempt: int
    generation: int
    why: str
    took_s: float = 0.0
    workers: tuple[WorkerEvidence, ...] = ()
    gpus: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=())


def write_evidence(directory: Path, found: NodeEvidence) -> None:
    """The node's index, whole or not at all."""
    files.replace_json(directory / f"{found.node}.json", {"version": VERSION, **asdict(found)})


def evidence_nodes(directory: Path) -> tuple[str, ...]:
    """Nodes whose index is there."""
    if not directory.is_dir():
        return ()
    return tuple(sorted(path.stem for path in directory.glob("*.json") if not path.name.startswith(".")))


def read_evidence(directory: Path, node: str) -> NodeEvidence | None:
    """One node's index, None when there is none.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    path = directory / f"{node}.json"
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return NodeEvidence(
            node=str(value["node"]),
            attempt=int(value["attempt"]),
            generation=int(value["generation"]),
            why=str(value["why"]),
            took_s=float(value["took_s"]),
            workers=tuple(_worker(item) for item in value["workers"]),
            gpus=tuple(dict(item) for item in value["gpus"]),
            problems=tuple(str(item) for item in value["problems"]),
            files=tuple(str(item) for item in value["files"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error


def _worker(item: Mapping[str, Any]) -> WorkerEvidence:
    threads = tuple(
        Thread(
            name=str(thread["name"]),
            active=bool(thread["active"]),
            frames=tuple(Frame(**frame) for frame in thread["frames"]),
        )
        for thread in item["threads"]
    )
    collectives = tuple(
        Collective(**{**entry, "ranks": tuple(int(rank) for rank in entry["ranks"])})
        for entry in item["collectives"]
    )
    rest = {key: value for key, value in item.items() if key not in {"threads", "collectives", "lines"}}
    lines = tuple(str(line) for line in item["lines"])
    return WorkerEvidence(**rest, threads=threads, collectives=collectives, lines=lines)
