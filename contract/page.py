"""The worker page: 4 KiB of shared memory through which a worker tells its node agent how far it is.

A mark is a handful of 8-byte stores into a mapped file, no system call. The counter is stored last, so that a
reader that sees a new counter sees what belongs to it. Any training program can use it:

    from contract.page import page_from_environment
    page = page_from_environment()          # does nothing when no agent started us
    page.mark(step=12, phase=Phase.FORWARD)
"""

import json
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any

from contract.states import Phase

SIZE = 4096
MAGIC = 0x0001_4347_4150_4943  # "CIPAGC" and layout version 1
VARIABLE = "CIUIC_PAGE"

# Indices of 8-byte slots.
_MAGIC, _PID, _RANK, _COUNTER, _STEP, _MICRO, _PHASE, _TOKENS, _LOSS, _MARKED, _WAITED = range(11)
_SPENT = 11  # one slot for each phase: nanoseconds spent in it so far
# Regions of text, each: 8 bytes of sequence number, 8 bytes of length, then UTF-8 (JSON where it says so).
_SAVING = (192, 320)  # worker → agent: {"error":…}, what kept the newest save from being written
_EXCEPTION = (512, 1536)  # worker → agent: {"type":…, "text":…}
_ORDERS = (2048, 1024)  # agent → worker: {"hot":{…}, "orders":[…]}
_DEVICE = (3072, 1024)  # agent → worker: figures of the GPU
_REPORTED = (*((phase.word, _SPENT + phase) for phase in Phase if phase.in_step), ("wait", _WAITED))


@dataclass(frozen=True, kw_only=True)
class PageReading:
    """One look at a page. `counter` moves with every mark; `loss` is NaN until one was reported.

    `spent`: seconds of the worker's life so far, by the word of the phase, for the phases of a step; `wait` is the part
    that it stood in agreements waiting for other ranks, which the phases do not count.
    `save_error`: why the newest checkpoint could not be written, "" when it was, or none was due yet.
    """

    pid: int
    rank: int
    counter: int
    step: int
    micro_step: int
    phase: Phase
    tokens: int
    loss: float
    exception: dict[str, str] | None
    spent: Mapping[str, float] = field(default_factory=dict)
    save_error: str = ""


class WorkerPage:
    """A mapped page, for the worker that marks it and the agent that reads it.

    `listener` hears the word of each region of the step that begins, while a profile is made.
    """

    listener: Callable[[str], None] | None

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._ints = memoryview(self._map).cast("q")
        self._floats = memoryview(self._map).cast("d")
        self.listener = None
        if self._ints[_MAGIC] != MAGIC:
            self.close()
            raise ValueError(f"{path}: not a worker page of this version")

    @classmethod
    def create(cls, path: Path, *, rank: int) -> "WorkerPage":
        """A fresh page for one rank (the agent does this before the worker starts)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            file.write(MAGIC.to_bytes(8, "little"))
        page = cls(path)
        page._ints[_RANK] = rank
        page._floats[_LOSS] = float("nan")
        return page

    def close(self) -> None:
        self._ints.release()
        self._floats.release()
        self._map.close()

    def mark(self, *, step: int, phase: Phase, micro_step: int = 0) -> None:
        """Say where we are; this is what counts as progress."""
        ints, now = self._ints, monotonic_ns()
        ints[_SPENT + ints[_PHASE]] += now - ints[_MARKED]
        ints[_MARKED] = now
        ints[_STEP] = step
        ints[_MICRO] = micro_step
        ints[_PHASE] = phase
        ints[_COUNTER] += 1
        if self.listener is not None:
            self.listener(phase.word)

    def enter(self, phase: Phase) -> None:
        """A new phase at the same step; progress too."""
        ints, now = self._ints, monotonic_ns()
        ints[_SPENT + ints[_PHASE]] += now - ints[_MARKED]
        ints[_MARKED] = now
        ints[_PHASE] = phase
        ints[_COUNTER] += 1
        if self.listener is not None:
            self.listener(phase.word)

    def region(self, name: str = "") -> None:
        """What follows is a part of its own within the phase; without a name, the phase itself goes on."""
        if self.listener is not None:
            self.listener(name or Phase.of(self._ints[_PHASE]).word)

    def waited(self, nanoseconds: int) -> None:
        """So much of the current phase was spent waiting for other ranks: not this rank's work."""
        self._ints[_WAITED] += nanoseconds
        self._ints[_SPENT + self._ints[_PHASE]] -= nanoseconds

    def started(self) -> None:
        """The worker's first word: its pid."""
        self._ints[_PID] = os.getpid()
        self._ints[_MARKED] = monotonic_ns()
        self._ints[_PHASE] = Phase.START
        self._ints[_COUNTER] += 1

    def report(self, *, loss: float, tokens: int) -> None:
        """Loss of the newest step and tokens consumed so far."""
        self._floats[_LOSS] = loss
        self._ints[_TOKENS] = tokens

    def exception(self, type_name: str, text: str) -> None:
        """Why the worker is about to end; read by the agent after the exit."""
        self._write(_EXCEPTION, {"type": _last_bytes(type_name, 200), "text": _last_bytes(text, 1100)})

    def report_save(self, error: str) -> None:
        """How the newest save ended: why it could not be written, or "". Training may go on all the same."""
        self._write(_SAVING, {"error": _first_bytes(error, 280)})

    def give_orders(self, orders: dict[str, Any]) -> None:
        """Agent side: hot changes and one-off orders for rank 0."""
        self._write(_ORDERS, orders)

    def orders(self) -> tuple[int, dict[str, Any]]:
        """Worker side: (sequence number, orders); the number moves when they change. Costs two loads if it did not."""
        return self._sequence(_ORDERS), self._read(_ORDERS) or {}

    def orders_sequence(self) -> int:
        """The sequence number alone, cheap enough for every step."""
        return self._sequence(_ORDERS)

    def give_device(self, figures: dict[str, Any]) -> None:
        """Agent side: NVML figures of the worker's GPU."""
        self._write(_DEVICE, figures)

    def device(self) -> dict[str, Any]:
        """Worker side: the newest figures of the GPU, empty when there are none."""
        return self._read(_DEVICE) or {}

    def read(self) -> PageReading:
        """One look, cheap enough to poll."""
        ints = self._ints
        counter = ints[_COUNTER]
        found = self._read(_EXCEPTION)
        saving = self._read(_SAVING) or {}
        return PageReading(
            pid=ints[_PID],
            rank=ints[_RANK],
            counter=counter,
            step=ints[_STEP],
            micro_step=ints[_MICRO],
            phase=Phase.of(ints[_PHASE]),
            tokens=ints[_TOKENS],
            loss=self._floats[_LOSS],
            exception=None if found is None else {str(key): str(value) for key, value in found.items()},
            spent={word: ints[slot] / 1e9 for word, slot in _REPORTED},
            save_error=str(saving.get("error", "")),
        )

    def _sequence(self, region: tuple[int, int]) -> int:
        return self._ints[region[0] // 8]

    def _write(self, region: tuple[int, int], value: dict[str, Any]) -> None:
        start, size = region
        data = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        if len(data) > size - 16:
            raise ValueError(f"{len(data)} bytes do not fit the page's {size - 16}")
        sequence = self._ints[start // 8]
        self._ints[start // 8 + 1] = 0  # a reader between the two stores sees "nothing", never a mixture
        self._map[start + 16 : start + 16 + len(data)] = data
        self._ints[start // 8 + 1] = len(data)
        self._ints[start // 8] = sequence + 1

    def _read(self, region: tuple[int, int]) -> dict[str, Any] | None:
        start, size = region
        length = self._ints[start // 8 + 1]
        if not 0 < length <= size - 16:
            return None
        try:
            value = json.loads(self._map[start + 16 : start + 16 + length])
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def _last_bytes(text: str, limit: int) -> str:
    """The end of the text (where exceptions say what happened) in so many bytes of JSON, borders respected."""
    kept = text[-limit:]
    while len(json.dumps(kept, ensure_ascii=False).encode(errors="replace")) - 2 > limit:
        kept = kept[max(1, len(kept) // 8) :]
    return kept


def _first_bytes(text: str, limit: int) -> str:
    """The beginning of the text (where the file system says what it refused) in so many bytes of JSON."""
    kept = text[:limit]
    while len(json.dumps(kept, ensure_ascii=False).encode(errors="replace")) - 2 > limit:
        kept = kept[: -max(1, len(kept) // 8)]
    return kept


class NullPage(WorkerPage):
    """Stands in when no agent started us, so that callers need no branch."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, SIZE)
        self.listener = None
        self._ints = memoryview(self._map).cast("q")
        self._floats = memoryview(self._map).cast("d")


def page_from_environment() -> WorkerPage:
    """The page that the agent made for us (CIUIC_PAGE), or one that nobody reads."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return NullPage()
    page = WorkerPage(Path(path))
    page.started()
    return page
