"""control.json: what the supervisor asks of the agents. Only the lock's holder writes it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from contract import files
from contract.layout import RunDir
from contract.states import ControlPhase

VERSION = 1


class OrderKind(StrEnum):
    """What can be ordered while a generation runs. Kinds that an agent does not know go to rank 0."""

    CHECKPOINT = "checkpoint"  # rank 0: save now
    PROFILE = "profile"  # rank 0, which tells all: profile the next steps (args: steps, ranks)
    EVIDENCE = "evidence"  # agents: keep where the workers stand, for a verdict; before they are ended
    DUMP = "dump"  # agents: the same, because a person asked

    @classmethod
    def looks(cls) -> "frozenset[str]":
        """Kinds that agents carry out by looking at their workers."""
        return frozenset({cls.EVIDENCE, cls.DUMP})


@dataclass(frozen=True, kw_only=True)
class Order:
    """A one-off order (`OrderKind`), carried out once per id."""

    id: str
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Control:
    """The whole of control.json. `max_step` -1: no upper bound; `port` 0: not known yet."""

    attempt: int
    generation: int
    phase: ControlPhase
    members: tuple[str, ...] = ()
    master: str = ""
    port: int = 0
    min_step: int = 0
    max_step: int = -1
    skip_windows: tuple[tuple[int, int], ...] = ()
    hot: Mapping[str, Any] = field(default_factory=dict)
    orders: tuple[Order, ...] = ()

    @property
    def at(self) -> tuple[int, int]:
        return (self.attempt, self.generation)


def write_control(run: RunDir, control: Control) -> None:
    """Replace control.json atomically."""
    files.replace_json(run.control, {"version": VERSION, **asdict(control)})


def read_control(run: RunDir) -> Control | None:
    """control.json, None when there is none yet.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    value = files.read_json(run.control)
    if value is None:
        return None
    try:
        return Control(
            attempt=int(value["attempt"]),
            generation=int(value["generation"]),
            phase=ControlPhase(value["phase"]),
            members=tuple(str(node) for node in value["members"]),
            master=str(value["master"]),
            port=int(value["port"]),
            min_step=int(value["min_step"]),
            max_step=int(value["max_step"]),
            skip_windows=tuple((int(start), int(end)) for start, end in value["skip_windows"]),
            hot=dict(value["hot"]),
            orders=tuple(
                Order(id=str(item["id"]), kind=str(item["kind"]), args=dict(item.get("args", {})))
                for item in value["orders"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run.control}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Go:
    """go-gNNNN.json of generation 1, created exclusively by agent 0 (no supervisor is needed to start)."""

    attempt: int
    generation: int
    members: tuple[str, ...]
    master: str
    port: int


def create_go(run: RunDir, go: Go) -> bool:
    """Create the go file exclusively; False if it exists."""
    return files.create_json(run.attempt(go.attempt).go(go.generation), {"version": VERSION, **asdict(go)})


def read_go(run: RunDir, attempt: int, generation: int) -> Go | None:
    """The go file of this generation, None when there is none.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    path = run.attempt(attempt).go(generation)
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return Go(
            attempt=int(value["attempt"]),
            generation=int(value["generation"]),
            members=tuple(str(node) for node in value["members"]),
            master=str(value["master"]),
            port=int(value["port"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Claim:
    """attempts/N/claim: which job owns the attempt. A job with another pair writes nothing and exits 77."""

    job_id: str
    restart: int


def claim_attempt(run: RunDir, attempt: int, claim: Claim) -> Claim:
    """Claim the attempt for this job, or learn who has it. Returns the claim that holds."""
    path = run.attempt(attempt).claim
    files.create_json(path, {"version": VERSION, **asdict(claim)})
    holder = read_claim(run, attempt)
    assert holder is not None
    return holder


def read_claim(run: RunDir, attempt: int) -> Claim | None:
    """The claim of this attempt, None when nobody has claimed it."""
    path = run.attempt(attempt).claim
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return Claim(job_id=str(value["job_id"]), restart=int(value["restart"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
