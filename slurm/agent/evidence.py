"""The agent's side of evidence: start the collector in time, wait for it no longer than it is worth, then let go."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.control import Control, OrderKind
from contract.layout import AttemptDir
from slurm.agent.collect import Subject, Task
from slurm.agent.worker import Worker

DEEP_S = 3.0  # what a recovery from a hang may wait for
GLANCE_S = 2.0  # how long the collector has after a crash; nobody waits for it
_SURVIVORS_AFTER_S = 0.3  # most die of the same crash sooner, or are ended: then a look would only cost
_HOLD_AFTER_CRASH_S = 0.15  # unless it is as good as done


@dataclass(kw_only=True)
class _Running:
    pid: int
    deadline: float
    deep: bool
    orders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where this agent's evidence goes, and what its workers have."""

    attempt: AttemptDir
    number: int
    node: str
    gpus: bool
    environment: Mapping[str, str]


class Evidence:
    """At most one collector at a time. Orders that come meanwhile wait for the next turn."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._running: _Running | None = None
        self._done: set[str] = set()
        self._crashed: tuple[int, float] | None = None  # generation, and when it was heard of
        self._glanced = 0  # generation whose crash was looked at
        self._hold_until: float | None = None

    def obey(
        self, control: Control | None, workers: Iterable[Worker], generation: int, now: float
    ) -> list[str]:
        """Start what control.json orders; the orders that are done without a look (nothing runs here)."""
        if control is None or control.attempt != self._place.number or self._running is not None:
            return []
        due = [
            order
            for order in control.orders
            if order.kind in OrderKind.looks() and order.id not in self._done
        ]
        if not due:
            return []
        order = due[0]
        subjects = _subjects(workers)
        if not subjects:
            self._done.add(order.id)
            return [order.id]
        directory = self._place.attempt.evidence(generation)
        asked = order.kind == OrderKind.DUMP
        self._start(
            directory / order.id if asked else directory,
            subjects,
            generation,
            now,
            why="asked for" if asked else "before the workers are ended",
            deep=True,
            orders=(order.id,),
        )
        return []

    def crashed(self, generation: int, now: float) -> None:
        """A worker has failed: `glance` has something to look for."""
        if self._glanced != generation and self._crashed is None:
            self._crashed = (generation, now)

    def glance(self, workers: Iterable[Worker], generation: int, now: float) -> None:
        """What do those do who have outlived a crash? Once a generation; devices are looked at in any case."""
        if self._crashed is None or self._running is not None:
            return
        if not self._place.gpus and now - self._crashed[1] < _SURVIVORS_AFTER_S:
            return
        due, self._crashed = self._crashed[0] == generation, None
        subjects = _subjects(workers)
        if not due or not (subjects or self._place.gpus):
            return
        self._glanced = generation
        directory = self._place.attempt.evidence(generation)
        self._start(directory, subjects, generation, now, why="a worker failed", deep=False, orders=())

    def turn(self, now: float) -> tuple[str, ...]:
        """Orders that have been carried out since the last turn, or given up."""
        running = self._running
        if running is None or (_lives(running.pid) and now < running.deadline):
            return ()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        self._running = self._hold_until = None
        self._done.update(running.orders)
        return running.orders

    def holds(self, now: float) -> bool:
        """Whether the end of the workers should wait for the collector. Bounded, from the first time of asking."""
        if self._running is None:
            return False
        if self._running.deep:
            return True  # `turn` ends it
        if self._hold_until is None:
            self._hold_until = now + _HOLD_AFTER_CRASH_S
        return now < self._hold_until

    def _start(
        self,
        directory: Path,
        subjects: tuple[Subject, ...],
        generation: int,
        now: float,
        *,
        why: str,
        deep: bool,
        orders: tuple[str, ...],
    ) -> None:
        seconds = DEEP_S if deep else GLANCE_S
        task = Task(
            directory=str(directory),
            node=self._place.node,
            attempt=self._place.number,
            generation=generation,
            why=why,
            agent=os.getpid(),
            began=now,
            seconds=seconds,
            deep=deep,
            gpus=self._place.gpus,
            workers=subjects,
        )
        pid = _spawn(task.encoded(), self._place.environment)
        self._running = _Running(pid=pid, deadline=now + seconds, deep=deep, orders=orders)
        self._hold_until = None


def _subjects(workers: Iterable[Worker]) -> tuple[Subject, ...]:
    return tuple(
        Subject(
            rank=worker.rank,
            pid=worker.pid,
            page=str(worker.page_path),
            phase=worker.reading.phase.word,
            step=worker.reading.step,
            lines=worker.output.last_lines,
        )
        for worker in workers
        if worker.alive and worker.pid
    )


def _spawn(task: bytes, environment: Mapping[str, str]) -> int:
    """The collector with this task as its input, in a process group of its own."""
    descriptor = os.memfd_create("ciuic-task")
    try:
        os.write(descriptor, task)
        os.lseek(descriptor, 0, os.SEEK_SET)
        command = [sys.executable, "-P", "-m", "slurm.agent.collect"]
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, 0)]
        return os.posix_spawn(sys.executable, command, dict(environment), file_actions=actions, setpgroup=0)
    finally:
        os.close(descriptor)


def _lives(pid: int) -> bool:
    """The agent's loop reaps every child, so that a pid that is gone has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
