"""Exit records: what really ended each worker, written by the agent that reaped it.

Slurm's own exit codes lie (srun reports the victims' SIGTERM rather than the first death), so this is the truth.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from contract import files
from contract.layout import RunDir
from contract.states import Phase

VERSION = 1
KERNEL_OOM = "KernelOutOfMemory"  # `exception_type` of a worker that the kernel killed for want of memory


@dataclass(frozen=True, kw_only=True)
class WorkerExit:
    """One worker's end. `code` as in subprocess (negative: signal); `ended_s` on the agent's monotonic clock.

    `ordered` is true when the agent itself ended it (a new generation, leave): then it explains nothing.
    """

    rank: int
    node: str
    code: int
    ended_s: float
    ordered: bool
    step: int
    phase: Phase
    exception_type: str = ""
    exception_text: str = ""
    last_lines: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """`signal 9 (SIGKILL)` or `exit code 1`, for sentences."""
        import signal  # noqa: PLC0415 - only for the name

        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


def write_exits(run: RunDir, attempt: int, generation: int, node: str, exits: tuple[WorkerExit, ...]) -> None:
    """Write (or extend, rewriting whole) the record of one node and generation."""
    path = run.attempt(attempt).exit_record(generation, node)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(item), "phase": item.phase.word} for item in exits]
    files.replace_json(path, {"version": VERSION, "workers": rows})


def read_exits(run: RunDir, attempt: int, generation: int) -> tuple[WorkerExit, ...]:
    """All exits of a generation that were recorded so far, by node and time of end.

    Raises:
        ValueError: a record is there and cannot be understood.
    """
    found: list[WorkerExit] = []
    for path in sorted(run.attempt(attempt).exits.glob(f"g{generation:04d}-*.json")):
        value = files.read_json(path)
        if value is None:
            continue
        try:
            found += [_exit(item) for item in value["workers"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    return tuple(sorted(found, key=lambda item: (item.node, item.ended_s)))


def _exit(item: dict[str, Any]) -> WorkerExit:
    names = {name.word: name for name in Phase}
    ended = float(item["ended_s"])
    return WorkerExit(
        rank=int(item["rank"]),
        node=str(item["node"]),
        code=int(item["code"]),
        ended_s=ended if math.isfinite(ended) else 0.0,
        ordered=bool(item["ordered"]),
        step=int(item["step"]),
        phase=names.get(item["phase"], Phase.UNKNOWN),
        exception_type=str(item["exception_type"]),
        exception_text=str(item["exception_text"]),
        last_lines=tuple(str(line) for line in item["last_lines"]),
    )
