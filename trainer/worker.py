"""Who this process is: rank, attempt, generation, bounds of the resume. Read once, from the agent's variables.

Without an agent (a benchmark, a test, torchrun) the same facts come from the command line and torchrun's variables;
each start is then a new generation of attempt 1.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.layout import RunDir
from contract.manifest import Bounds
from trainer.errors import ConfigError

UNKNOWN_GENERATION = 0


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One rank of one generation.

    `master_fd` is the listening socket for torch's store, -1 when this rank did not get one. `generation` is
    UNKNOWN_GENERATION without an agent, until rank 0 has counted.
    """

    run: RunDir
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    generation: int
    bounds: Bounds
    skip_windows: tuple[tuple[int, int], ...]
    master_address: str
    master_port: int
    master_fd: int
    supervised: bool

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which decides and writes for all."""
        return self.rank == 0


def worker_from_environment(environment: Mapping[str, str], run_dir: Path | None = None) -> Worker:
    """The worker that these variables describe; `run_dir` stands in when no agent started us.

    Raises:
        ConfigError: a variable is missing or makes no sense; the message names it.
    """
    supervised = "CIUIC_RUN_DIR" in environment
    if not supervised and run_dir is None:
        raise ConfigError("no CIUIC_RUN_DIR from a node agent and no --run-dir")
    rank = _number(environment, "RANK", 0)
    world_size = _number(environment, "WORLD_SIZE", 1)
    if not 0 <= rank < world_size:
        raise ConfigError(f"RANK={rank} is not one of WORLD_SIZE={world_size} ranks")
    return Worker(
        run=RunDir(path=Path(environment["CIUIC_RUN_DIR"]) if supervised else (run_dir or Path()).resolve()),
        rank=rank,
        world_size=world_size,
        local_rank=_number(environment, "LOCAL_RANK", 0),
        attempt=_number(environment, "CIUIC_ATTEMPT", 1),
        generation=_number(environment, "CIUIC_GENERATION", UNKNOWN_GENERATION),
        bounds=Bounds(
            min_step=_number(environment, "CIUIC_MIN_STEP", 0),
            max_step=_number(environment, "CIUIC_MAX_STEP", -1),
        ),
        skip_windows=_windows(environment.get("CIUIC_SKIP_WINDOWS", "[]")),
        master_address=environment.get("MASTER_ADDR", ""),
        master_port=_number(environment, "MASTER_PORT", 0),
        master_fd=_number(environment, "CIUIC_MASTER_FD", -1),
        supervised=supervised,
    )


def complete_environment(worker: Worker) -> None:
    """Set what DeepSpeed insists on reading from the environment when nobody has set it (a start without launcher)."""
    for name, value in {
        "RANK": worker.rank,
        "WORLD_SIZE": worker.world_size,
        "LOCAL_RANK": worker.local_rank,
    }.items():
        os.environ.setdefault(name, str(value))


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not a whole number") from None


def _windows(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((int(start), int(end)) for start, end in json.loads(text or "[]"))
    except (TypeError, ValueError):
        raise ConfigError(f"CIUIC_SKIP_WINDOWS={text!r} is not a list of [start, end) pairs") from None
