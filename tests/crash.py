"""Kill a program at every system call of a part of its work, one call a run, and look at what is left.

The program is a Python script. It marks the part with `crash.begin()` and `crash.end()`: calls of access(2) on paths
that nothing else asks for. strace counts the calls of each kind and delivers SIGKILL at the entry of the chosen one, so
that everything before it has happened and nothing of it.

    program = Program(script=script, prepare=fill, arguments=lambda place: [str(place)])
    for kill in program.every_kill(tmp_path):
        assert …, kill    # kill.place is the directory as the kill left it
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.forks import Forks, Run

BEGIN, END = "/crash/begin", "/crash/end"
# Every call that changes a file system, makes it durable, or looks at it before doing so.
CALLS = (
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range",
    "fsync", "fdatasync", "sync_file_range", "syncfs", "ftruncate", "truncate", "fallocate", "close",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "rmdir",
    "mkdir", "mkdirat", "utimensat", "fchmod", "fchmodat", "chmod", "getdents64", "flock",
)  # fmt: skip
# Of these the ones that nothing but a change of files needs.
CHANGES = (
    "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "renameat", "renameat2", "link", "linkat",
    "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "flock",
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
    """One run that was killed: at the `number`-th call of this kind (counted from the script's start)."""

    call: str
    number: int
    text: str  # the call as strace printed it in the run that was left alone
    place: Path

    def __str__(self) -> str:
        return f"killed at {self.call} number {self.number}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A script that does the same each time. `prepare` fills the directory that a run works in.

    `threads`: whether the calls of all threads count, or the first one's alone (where others only do the network's work).
    `kinds`: calls to be killed at.
    """

    script: Path
    prepare: Callable[[Path], object]
    arguments: Callable[[Path], Sequence[str]]
    environment: Mapping[str, str] | None = None
    threads: bool = True
    kinds: Sequence[str] = CALLS

    def calls(self, where: Path) -> list[str]:
        """The calls between the marks of one undisturbed run, as strace prints them, in their order."""
        with Forks(self.script, self.environment) as forks:
            return [text for _, _, text in self._points(self._run(forks, where / "undisturbed"))]

    def every_kill(self, where: Path, *, at_once: int = 2) -> Iterator[Kill]:
        """Run the script once undisturbed, then once for each of its calls between the marks, killed there.

        Each run has a directory of its own under `where`, made by `prepare`. Raises AssertionError when a run was not
        killed inside the part: then the program does not do the same each time, and the proof would have holes.
        """
        with ExitStack() as stack:
            idle: SimpleQueue[Forks] = SimpleQueue()
            for _ in range(at_once):
                idle.put(stack.enter_context(Forks(self.script, self.environment)))
            points = self._measured(idle, where / "undisturbed")

            def killed(number: int) -> Kill:
                call, count, text = points[number]
                place = where / f"kill-{number:04d}"
                forks = idle.get()
                try:
                    trace = self._run(forks, place, f"inject={call}:signal=SIGKILL:when={count}")
                finally:
                    idle.put(forks)
                assert "killed by SIGKILL" in trace, (
                    f"{call} number {count} was not reached:\n{trace[-2000:]}"
                )
                seen = [line for line in trace.splitlines() if BEGIN in line or END in line]
                assert len(seen) == 1, f"killed outside the part, at {call} number {count}"
                return Kill(call=call, number=count, text=text, place=place)

            with ThreadPoolExecutor(at_once) as pool:
                yield from pool.map(killed, range(len(points)))

    def _measured(self, idle: "SimpleQueue[Forks]", place: Path) -> list[tuple[str, int, str]]:
        forks = idle.get()
        points = self._points(self._run(forks, place))
        idle.put(forks)
        assert points, "no system call between the marks"
        return points

    def _run(self, forks: Forks, place: Path, *inject: str) -> str:
        """One run under strace; returns what it printed."""
        place.mkdir()
        self.prepare(place)
        run = forks.start(*self.arguments(place), stopped=True)
        calls = ",".join((*self.kinds, "access", "faccessat", "faccessat2"))
        text = trace(run, place.with_suffix(".trace"), f"trace={calls}", *inject, threads=self.threads)
        code = run.wait()
        assert inject or code == 0, f"{forks.errors()}\n{text[-2000:]}"
        return text

    def _points(self, trace: str) -> list[tuple[str, int, str]]:
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
            elif inside and call in self.kinds:
                found.append((call, counts[call], f"{call}({match[2]}"[:200]))
        return found


def trace(run: Run, log: Path, *expressions: str, threads: bool = True) -> str:
    """Let a run that stands still go on under strace with these -e expressions, to its end; returns what was printed."""
    options = [part for expression in expressions for part in ("-e", expression)]
    tracer = subprocess.Popen(
        [
            "strace",
            *(("-f",) if threads else ()),
            "-qq",
            "-s",
            "120",
            "-o",
            str(log),
            *options,
            "-p",
            str(run.pid),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until_traced(run.pid, tracer)
    os.kill(run.pid, signal.SIGCONT)
    tracer.communicate(timeout=60)
    text = log.read_text(errors="replace")
    log.unlink()
    return text


def _wait_until_traced(pid: int, tracer: subprocess.Popen[str]) -> None:
    """Until the tracer holds the process: calls before would not be counted."""
    deadline = time.monotonic() + 30
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        if "TracerPid:\t0\n" not in status and "State:\tt" in status:
            return
        assert time.monotonic() < deadline, status
        assert tracer.poll() is None, tracer.communicate()[1]
        time.sleep(0.001)
