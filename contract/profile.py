"""What the profile of one rank says: written beside its trace, read by the supervisor."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract import files

VERSION = 1
TRACE = ".pt.trace.json.gz"  # what TensorBoard's profile plugin looks for; Perfetto opens it as it is
SLOW = "slow-"  # how the orders of profiles begin that slowness asked for
REST = "rest"  # the part of a step that no region names


@dataclass(frozen=True, kw_only=True)
class Region:
    """A part of the step. `seconds` of the host and `device_s` of the device's work started in it, each a step.

    `peak_bytes`: the most memory in it, on a device what its allocator has given out, on a CPU what was allocated since
    the profile began; None: not known.
    """

    name: str
    seconds: float
    device_s: float = 0.0
    peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Time of its own (on the device when there is one) and calls, both a step."""

    name: str
    seconds: float
    calls: float


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Where the time of the profiled steps went; everything in seconds a step.

    `comm_s`: some communication was on its way. `exposed_s`: the part of it in which nothing was computed. `covered`:
    the share of the step that the regions make up.
    """

    step_s: float
    device: str
    regions: tuple[Region, ...]
    covered: float
    comm_s: float
    exposed_s: float
    operators: tuple[Operator, ...]


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """One rank of a profile. `order`: whose wish it was; `ranks`: all that take part. `error`: why `timing` is missing.

    `plain_s`: a step of the same generation before it, not profiled (median), None: there were too few. `stopped_s`: how
    long the rank stood still at its end.
    """

    run: str
    attempt: int
    generation: int
    order: str
    first_step: int
    steps: int
    rank: int
    ranks: tuple[int, ...]
    plain_s: float | None
    profiled_s: float
    stopped_s: float
    timing: Timing | None = None
    error: str = ""

    @property
    def overhead(self) -> float | None:
        """By which share the profiled steps were slower than those before; None: not known."""
        return self.profiled_s / self.plain_s - 1 if self.plain_s else None


def summary_of(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank:05d}.json"


def trace_of(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank:05d}{TRACE}"


def write_profile(directory: Path, profile: RankProfile) -> None:
    """Written last: a reader that sees it finds the trace."""
    files.replace_json(summary_of(directory, profile.rank), {"version": VERSION, **asdict(profile)})


def read_profile(path: Path) -> RankProfile | None:
    """The summary in this file, None when it is not there.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return profile_from(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error


def profile_from(value: dict[str, Any]) -> RankProfile:
    """The inverse of `asdict`; unknown keys are left out."""
    timing = value["timing"]
    plain = value["plain_s"]
    return RankProfile(
        run=str(value["run"]),
        attempt=int(value["attempt"]),
        generation=int(value["generation"]),
        order=str(value["order"]),
        first_step=int(value["first_step"]),
        steps=int(value["steps"]),
        rank=int(value["rank"]),
        ranks=tuple(int(rank) for rank in value["ranks"]),
        plain_s=None if plain is None else float(plain),
        profiled_s=float(value["profiled_s"]),
        stopped_s=float(value["stopped_s"]),
        timing=None if timing is None else _timing(timing),
        error=str(value.get("error", "")),
    )


def _timing(value: dict[str, Any]) -> Timing:
    return Timing(
        step_s=float(value["step_s"]),
        device=str(value["device"]),
        regions=tuple(
            Region(
                name=str(item["name"]),
                seconds=float(item["seconds"]),
                device_s=float(item["device_s"]),
                peak_bytes=None if item["peak_bytes"] is None else int(item["peak_bytes"]),
            )
            for item in value["regions"]
        ),
        covered=float(value["covered"]),
        comm_s=float(value["comm_s"]),
        exposed_s=float(value["exposed_s"]),
        operators=tuple(
            Operator(name=str(item["name"]), seconds=float(item["seconds"]), calls=float(item["calls"]))
            for item in value["operators"]
        ),
    )


def read_profiles(directory: Path) -> list[RankProfile]:
    """The summaries that can be read, by rank."""
    found = []
    for path in sorted(directory.glob("rank-*.json")):
        try:
            profile = read_profile(path)
        except (OSError, ValueError):  # it stays in the directory for people
            continue
        if profile is not None:
            found.append(profile)
    return found
