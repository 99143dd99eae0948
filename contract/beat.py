"""The beat: what a node agent reports once a second in a file of fixed size, rewritten in place.

One write of header, checksum and JSON; no rename, so that thousands of nodes cost the metadata server
nothing. A reader that meets a write half done sees a wrong checksum and reads None: unknown, not dead.
"""

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract.states import AgentPhase, Phase

SIZE = 8192
UNFIT = "unfit"
"""In a beat's health: `why` its node was left out before it trained."""
_MAGIC = b"CIUICBT1"
_HEADER = len(_MAGIC) + 16  # magic, 8 hex digits of length, 8 of CRC-32
_PHASES = {phase.word: phase for phase in Phase}
_AGENT_PHASES = {phase.value: phase for phase in AgentPhase}


@dataclass(frozen=True, kw_only=True)
class WorkerBeat:
    """One worker. `idle_s`: seconds since its counter moved, on the agent's own monotonic clock.

    `exit_code` is None while it lives; negative for a signal, as in `subprocess`. `exit_age_s` counts from
    the moment that the agent reaped it. `os_state`: the kernel's letter for the process (T: stopped, D: in an
    uninterruptible call), "" where it was not read. While the counter stands still, `busy` is how many cores the
    process keeps busy and `quiet_s` for how long (s) it has neither read nor written; None: not measured. `spent`: phase word
    (and `wait`, for other ranks) → mean seconds a step over the last minute; empty before that can be told.
    `save_error`: why its newest checkpoint could not be written.
    """

    rank: int
    local_rank: int
    pid: int
    step: int = 0
    micro_step: int = 0
    phase: Phase = Phase.UNKNOWN
    loss: float = math.nan
    tokens: int = 0
    idle_s: float = 0.0
    exit_code: int | None = None
    exit_age_s: float = 0.0
    os_state: str = ""
    busy: float | None = None
    quiet_s: float | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    save_error: str = ""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One node. `sequence` moves with every beat; `port` is the listening socket for the next generation."""

    node: str
    attempt: int
    generation: int
    sequence: int
    phase: AgentPhase
    pid: int = 0
    host: str = ""
    ready_for: int = 0  # the generation for which everything here is prepared; 0: none
    address: str = ""
    port: int = 0
    done_code: int | None = None  # exit code with which this agent means to leave
    workers: tuple[WorkerBeat, ...] = ()
    orders_done: tuple[str, ...] = ()
    usual: Mapping[str, float] = field(default_factory=dict)
    """Phase word → longest time (s) for which a worker's counter stood still in it and then moved on, since the
    first step of this generation was done. From this the observer learns the run's own limits (design rule 8)."""
    health: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what hides nowhere else: fallbacks, settings that could not be applied


def encode(beat: Beat) -> bytes:
    """SIZE bytes. Health and notes are left out when they do not fit, then `spent` and the ends of errors: progress always fits."""
    value = asdict(beat)
    for worker in value["workers"]:
        worker["phase"] = worker["phase"].word
        worker["loss"] = worker["loss"] if math.isfinite(worker["loss"]) else None
        if not worker["save_error"]:  # rank 0's alone, and seldom
            del worker["save_error"]
    body = json.dumps({"version": 1, **value}, ensure_ascii=False).encode(errors="replace")
    if len(body) > SIZE - _HEADER:
        value |= {"health": {}, "notes": ["beat: health and notes did not fit"]}
        body = json.dumps({"version": 1, **value}, separators=(",", ":")).encode()
    if len(body) > SIZE - _HEADER:
        for worker in value["workers"]:
            worker["spent"] = {}
            if "save_error" in worker:
                worker["save_error"] = worker["save_error"][:40].encode("ascii", "replace").decode()
        body = json.dumps({"version": 1, **value}, separators=(",", ":")).encode()
    if len(body) > SIZE - _HEADER:
        raise ValueError(
            f"a beat of {len(body)} bytes does not fit {SIZE}: {len(beat.workers)} workers on one node"
        )
    return (_MAGIC + b"%08x%08x" % (len(body), zlib.crc32(body)) + body).ljust(SIZE, b"\0")


def decode(data: bytes) -> Beat | None:
    """The beat in these bytes; None if they are torn, empty or of another make."""
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    try:
        length, checksum = int(data[8:16], 16), int(data[16:24], 16)
        body = data[_HEADER : _HEADER + length]
        if len(body) != length or zlib.crc32(body) != checksum:
            return None
        return _beat(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return None


def _beat(value: dict[str, Any]) -> Beat:
    workers = tuple(
        WorkerBeat(
            rank=item["rank"],
            local_rank=item["local_rank"],
            pid=item["pid"],
            step=item["step"],
            micro_step=item["micro_step"],
            phase=_PHASES.get(item["phase"], Phase.UNKNOWN),
            loss=math.nan if item["loss"] is None else item["loss"],
            tokens=item["tokens"],
            idle_s=item["idle_s"],
            exit_code=item["exit_code"],
            exit_age_s=item["exit_age_s"],
            os_state=item.get("os_state", ""),
            busy=item.get("busy"),
            quiet_s=item.get("quiet_s"),
            spent=item.get("spent", {}),
            save_error=item.get("save_error", ""),
        )
        for item in value["workers"]
    )
    return Beat(
        node=value["node"],
        attempt=value["attempt"],
        generation=value["generation"],
        sequence=value["sequence"],
        phase=_AGENT_PHASES.get(value["phase"], AgentPhase.UNKNOWN),
        pid=value["pid"],
        host=value["host"],
        ready_for=value["ready_for"],
        address=value["address"],
        port=value["port"],
        done_code=value["done_code"],
        workers=workers,
        orders_done=tuple(value["orders_done"]),
        usual=value.get("usual", {}),
        health=value["health"],
        notes=tuple(value["notes"]),
    )


class BeatFile:
    """The writing side: one descriptor held open, one pwrite and one fsync a beat."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, beat: Beat) -> None:
        os.pwrite(self._descriptor, encode(beat), 0)
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_beat(path: Path) -> Beat | None:
    """The newest beat, opened afresh; None when torn or not there yet. Other errors are raised."""
    try:  # thousands a second: without the layers of open()
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return decode(os.read(descriptor, SIZE))
    finally:
        os.close(descriptor)
