"""A rank's flight recorder: have torch write it, and keep what tells where the rank stands. Reading is pure."""

import io
import json
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.evidence import FLIGHT, NCCL, WAKE, Collective

KEPT = 6  # entries of each group
_DONE = frozenset({"completed"})


class RecorderError(Exception):
    """Why there are no entries, in words."""


def ask(page: Path, rank: int, *, seconds: float) -> dict[str, Any]:
    """The recorder of the worker with this page. NCCL's own thread answers also while the interpreter is stuck.

    Raises:
        RecorderError: the program has none, or did not answer in so many seconds.
    """
    wake, pipe = Path(f"{page}{WAKE}"), Path(f"{page}{NCCL}{rank}.pipe")
    ways = [(wake, Path(f"{page}{FLIGHT}")), (pipe, Path(f"{page}{NCCL}{rank}"))]
    ways = [(fifo, answer) for fifo, answer in ways if fifo.exists()]
    if not ways:
        raise RecorderError("this program offers none")
    for fifo, answer in ways:
        answer.unlink(missing_ok=True)
        _knock(fifo)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _, answer in ways:
            if answer.exists() and (found := _read(answer)) is not None:
                return found
        time.sleep(0.02)
    raise RecorderError(f"no answer within {seconds:.1f} s")


def last_collectives(dump: Mapping[str, Any]) -> tuple[Collective, ...]:
    """The newest entries of each process group in torch's dump (JSON or unpickled), point-to-point ones left out.

    The shape is that of `torch.distributed.flight_recorder`, format 2.x.
    """
    configured = dump.get("pg_config") or {}
    groups: dict[str, list[Collective]] = {}
    for entry in dump.get("entries") or []:
        if entry.get("is_p2p"):
            continue
        group, description = (*entry["process_group"], "")[:2]
        name = description if description not in {"", "undefined"} else f"group {group}"
        groups.setdefault(f"{group}:{name}", []).append(
            Collective(
                group=f"{group}:{name}",
                ranks=_ranks(configured.get(group) or configured.get(name)),
                seq=int(entry["collective_seq_id"]),
                name=str(entry["profiling_name"]).rpartition(":")[2],
                sizes=_sizes(entry),
                done=bool(entry.get("retired")) or entry.get("state") in _DONE,
                at=int(entry.get("time_created_ns") or 0) / 1e9,
            )
        )
    newest = [sorted(found, key=lambda item: item.seq)[-KEPT:] for found in groups.values()]
    return tuple(item for found in newest for item in found)


def _sizes(entry: Mapping[str, Any]) -> str:
    return f"{_shape(entry.get('input_sizes'))}→{_shape(entry.get('output_sizes'))}"[:120]


def _shape(sizes: Sequence[Sequence[int]] | None) -> str:
    return "+".join("×".join(str(number) for number in size) or "1" for size in sizes or [])


def _ranks(configured: Mapping[str, Any] | None) -> tuple[int, ...]:
    value = configured.get("ranks") if configured else None
    try:
        return tuple(int(rank) for rank in (json.loads(value) if isinstance(value, str) else value or ()))
    except (TypeError, ValueError):
        return ()


def _knock(fifo: Path) -> None:
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:  # nobody reads at the other end
        raise RecorderError(f"nobody listens: {error.strerror}") from error
    try:
        os.write(descriptor, b"1\n" if fifo.suffix == ".pipe" else b"1")
    finally:
        os.close(descriptor)


class _Plain(pickle.Unpickler):
    """Numbers, strings and containers only: a pickle of anything else would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is none of the plain types")


def _read(path: Path) -> dict[str, Any] | None:
    """The dump, None while it is being written."""
    data = path.read_bytes()
    if not data:
        if path.suffix == FLIGHT:
            raise RecorderError("torch has recorded nothing")
        return None
    try:
        found = json.loads(data) if data[:1] == b"{" else _Plain(io.BytesIO(data)).load()
    except (ValueError, EOFError, pickle.UnpicklingError):
        return None
    return found if isinstance(found, dict) else None
