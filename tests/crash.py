"""Kill a program at every system call of a part of its work, one call a run, and look at what is left.

The program is a Python script. It marks the part with `crash.begin()` and `crash.end()`: calls of access(2) on paths
that nothing else asks for. strace counts the calls of each kind and delivers SIGKILL at the entry of the chosen one, so
that everything before it has happened and nothing of it.

    for kill in every_kill(script, arguments=lambda place: [place], prepare=fill, where=tmp_path):
        assert …, kill    # kill.place is the directory as the kill left it
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
BEGIN, END = "/crash/begin", "/crash/end"
# Every call that changes a file system, makes it durable, or looks at it before doing so.
CALLS = (
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range",
    "fsync", "fdatasync", "sync_file_range", "syncfs", "ftruncate", "truncate", "fallocate", "close",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "rmdir",
    "mkdir", "mkdirat", "utimensat", "fchmod", "fchmodat", "chmod", "getdents64", "flock",
)  # fmt: skip
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed (Debian: apt-get install strace)"
)


def begin() -> None:
    """The part that may be killed begins."""
    os.access(BEGIN, os.F_OK)


def end() -> None:
    """It has ended: from here on nothing is killed."""
    os.access(END, os.F_OK)


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One run that was killed: at the `number`-th call of this kind (counted from the program's start)."""

    call: str
    number: int
    text: str  # the call as strace printed it in the run that was left alone
    place: Path

    def __str__(self) -> str:
        return f"killed at {self.call} number {self.number}: {self.text}"


def every_kill(
    script: Path,
    *,
    arguments: Callable[[Path], Sequence[str]],
    prepare: Callable[[Path], None],
    where: Path,
    at_once: int = 2,
) -> Iterator[Kill]:
    """Run the script once undisturbed, then once for each of its calls between the marks, killed there.

    Each run has a directory of its own under `where`, made by `prepare`. Raises AssertionError when a run was not killed
    inside the part: then the program does not do the same each time, and the proof would have holes.
    """
    points = _points(_run(script, arguments, prepare, where / "undisturbed"))
    assert points, "no system call between the marks"

    def killed(number: int) -> Kill:
        call, count, text = points[number]
        place = where / f"kill-{number:04d}"
        inject = ("-e", f"inject={call}:signal=SIGKILL:when={count}")
        trace = _run(script, arguments, prepare, place, *inject)
        assert "killed by SIGKILL" in trace, f"{call} number {count} was not reached:\n{trace[-2000:]}"
        seen = [line for line in trace.splitlines() if BEGIN in line or END in line]
        assert len(seen) == 1, f"killed outside the part, at {call} number {count}"
        return Kill(call=call, number=count, text=text, place=place)

    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(killed, range(len(points)))


def calls(
    script: Path,
    *,
    arguments: Callable[[Path], Sequence[str]],
    prepare: Callable[[Path], None],
    where: Path,
) -> list[str]:
    """The calls between the marks of one undisturbed run, as strace prints them, in their order."""
    points = _points(_run(script, arguments, prepare, where / "undisturbed"))
    return [text for _, _, text in points]


def _run(
    script: Path,
    arguments: Callable[[Path], Sequence[str]],
    prepare: Callable[[Path], None],
    place: Path,
    *options: str,
) -> str:
    """One run under strace; returns what it printed."""
    place.mkdir()
    prepare(place)
    trace = place.with_suffix(".trace")
    calls = ",".join((*CALLS, "access", "faccessat", "faccessat2"))
    command = [
        *("strace", "-f", "-qq", "-s", "120", "-o", str(trace), "-e", f"trace={calls}", *options),
        *(sys.executable, "-P", str(script), *arguments(place)),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    text = trace.read_text(errors="replace")
    trace.unlink()
    assert options or done.returncode == 0, done.stderr + text[-2000:]
    return text


def _points(trace: str) -> list[tuple[str, int, str]]:
    """(call, its number among the calls of its kind since the start, its text) of each call between the marks."""
    found: list[tuple[str, int, str]] = []
    counts: Counter[str] = Counter()
    inside = False
    for line in trace.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        call = match[1]
        counts[call] += 1
        if BEGIN in line or END in line:
            inside = BEGIN in line
        elif inside and call in CALLS:
            found.append((call, counts[call], f"{call}({match[2]}"[:200]))
    return found
