"""What of a ciuic run directory is a log, and exit records as lines that can be read like one."""

import json
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ATTEMPT = re.compile(r"\d{4}")
_RECORD = re.compile(r"(?:^|/)g\d{4}-[^/]+\.json$")
_OF_ATTEMPT = re.compile(r"^(.*?)(?:^|/)attempts/(\d{4})/")


def own_logs(path: Path) -> list[Path] | None:
    """The logs of a run, of its attempts or of one attempt; None where this directory is none of them."""
    if _is_attempt(path):
        return _of_attempt(path)
    attempts = path if path.absolute().name == "attempts" else path / "attempts"
    found = _numbered(attempts) if attempts.is_dir() else []
    if found:
        return [log for attempt in found for log in _of_attempt(attempt)]
    return [] if (path / "run.toml").is_file() and (path / "journal.jsonl").is_file() else None


def attempt_of(name: str) -> tuple[str, int] | None:
    """The run and the number of the attempt that this log is of, by its path."""
    found = _OF_ATTEMPT.search(name)
    return None if found is None else (found[1], int(found[2]))


def is_record(name: str) -> bool:
    """Whether this may be an exit record, by its path."""
    return _RECORD.search(name) is not None


def record_lines(data: bytes) -> bytes | None:
    """An exit record in lines: each worker's last words, then how it ended. None where it is something else."""
    try:
        workers = json.loads(data)["workers"]
        rows = [line for worker in workers for line in _worker(worker)]
    except (ValueError, KeyError, TypeError):
        return None
    return "".join(f"{row}\n" for row in rows).encode(errors="replace")


def _worker(worker: Mapping[str, Any]) -> Iterator[str]:
    yield from end_lines(
        rank=int(worker["rank"]),
        code=None if worker["ordered"] else int(worker["code"]),
        words=tuple(str(line) for line in worker["last_lines"]),
        exception=f"{worker['exception_type']}: {worker['exception_text']}"
        if worker["exception_type"]
        else "",
        where=f"step {int(worker['step'])}, {worker['phase']}",
    )


def end_lines(
    *, rank: int, code: int | None, words: tuple[str, ...], exception: str, where: str
) -> Iterator[str]:
    """One worker's end in lines: its last words, its exception where they lack it, how it ended (None: by order)."""
    yield from (f"[rank{rank}]: {word}" for word in words)
    raised = exception.splitlines()
    if raised and not any(raised[0] in word for word in words):
        yield from (f"[rank{rank}]: {word}" for word in ("Traceback (most recent call last):", *raised))
    yield f"rank {rank} ended by order" if code is None else f"rank {rank} ended: {_what(code)} at {where}"


def _what(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    names = {int(number): number.name for number in signal.Signals}
    return names.get(-code, f"exit code {128 - code}")  # as a shell says it


def _is_attempt(path: Path) -> bool:
    real = path.absolute()
    inside = real.parent.name == "attempts" or (path / "exits").is_dir()
    return _ATTEMPT.fullmatch(real.name) is not None and inside and path.is_dir()


def _numbered(attempts: Path) -> list[Path]:
    return sorted(path for path in attempts.iterdir() if _ATTEMPT.fullmatch(path.name) and path.is_dir())


def _of_attempt(attempt: Path) -> list[Path]:
    """Node logs, what the job printed, and exit records of nodes whose log is not there: they say the same again."""
    logs = [path for path in (attempt / "logs").rglob("*") if path.is_file()]
    told = {path.name.partition(".log")[0] for path in logs if path.stat().st_size}
    printed = [
        path
        for path in (attempt / "submission").glob("*")
        if path.suffix in {".out", ".err"} and path.is_file()
    ]
    records = [
        path
        for path in (attempt / "exits").glob("g*-*.json")
        if path.stem.partition("-")[2] not in told and path.is_file()
    ]
    return [*logs, *printed, *records]
