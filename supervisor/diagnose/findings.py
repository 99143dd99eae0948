"""What a scan of the logs found: plain values, the input of the judgement."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.diagnose.catalogue import Entry
from supervisor.diagnose.stamps import Stamp


@dataclass(frozen=True, kw_only=True)
class Event:
    """One place in a log where an entry of the catalogue matched.

    `task` is a Slurm task, which is a rank only where srun starts the ranks itself. `soft`: its own level or
    words say that the program went on. `step` is how far the count of training steps was in this file.
    `code` is an exit code, negative for a signal. `works` are the NCCL work numbers that it names.
    """

    entry: Entry
    file: int
    line: int
    text: str
    rank: int | None = None
    task: int | None = None
    local: int | None = None
    node: str = ""
    generation: int = 0
    stamp: Stamp | None = None
    soft: bool = False
    fallback: bool = False
    first: bool = False
    code: int | None = None
    work: int | None = None
    step: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return (self.file, self.line)


@dataclass(frozen=True, kw_only=True)
class FileScan:
    """One log, read to its end. `step`: how many steps were counted since the first event."""

    name: str
    lines: int
    events: tuple[Event, ...]
    survived: tuple[Event, ...]
    step: int
    generation: int
    last: tuple[tuple[int, str], ...]
    nodes: frozenset[str] = frozenset()
    node_of: Mapping[int, str] = field(default_factory=dict)
    world: int = 0
    launcher: bool = False
