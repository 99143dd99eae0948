"""Collects the evidence of one node, in a process of its own that the agent gives up on when it takes too long.

python -P -m slurm.agent.collect < task.json

Workers in parallel: Python stacks, the flight recorder, then native stacks while there is time. What fails is named
in the index; nothing of it is an error of this program.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from contract.evidence import STACKS, Frame, NodeEvidence, Thread, WorkerEvidence, write_evidence
from slurm.agent import devices, recorder, stacks
from slurm.agent.spawner import die_with_parent

_STACKS_S = 1.0
_RECORDER_S = 0.5
_LEAST_S = 0.1
_LOOKING = 0.75  # share of the time; the rest is for writing on a slow file system
_TEXT = 1024 * 1024  # bytes of the text for people
_INDEX_LINES = 5  # the index is read by a supervisor that has thousands of nodes; the text has all
_INDEX_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A worker to look at. `page`: path of its page, beside which it may have laid more."""

    rank: int
    pid: int
    page: str
    phase: str
    step: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """`deep`: with native code and flight recorder. `seconds`: in all, the writing included, from `began` on.

    `began`: the agent's monotonic clock, which is this machine's: what our own start took has passed already.
    """

    directory: str
    node: str
    attempt: int
    generation: int
    why: str
    agent: int
    began: float
    seconds: float
    deep: bool
    gpus: bool
    workers: tuple[Subject, ...]

    def encoded(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode(errors="replace")


def decoded(data: bytes) -> Task:
    """The task that an agent wrote."""
    value = json.loads(data)
    workers = tuple(Subject(**{**item, "lines": tuple(item["lines"])}) for item in value["workers"])
    return Task(**{**value, "workers": workers})


def collect(task: Task) -> tuple[NodeEvidence, str]:
    """The index, and the text for people."""
    deadline = task.began + _LOOKING * task.seconds
    pool = ThreadPoolExecutor(max_workers=len(task.workers) + 1)
    health: Future[Any] | None = None
    if task.gpus:
        health = pool.submit(devices.ask, seconds=_left(deadline))
    looks = [pool.submit(_look, item, deep=task.deep, deadline=deadline) for item in task.workers]
    found = [look.result() for look in looks]
    pool.shutdown(wait=False)
    problems = [f"rank {item.rank}: {item.problem}" for item, _ in found if item.problem]
    gpus: tuple[dict[str, Any], ...] = ()
    try:
        gpus = health.result() if health else ()
    except devices.DevicesError as error:
        problems.append(str(error))
    index = NodeEvidence(
        node=task.node,
        attempt=task.attempt,
        generation=task.generation,
        why=task.why,
        workers=tuple(replace(item, threads=item.threads[:_INDEX_THREADS]) for item, _ in found),
        gpus=gpus,
        problems=tuple(problems),
    )
    lines = {item.rank: item.lines for item in task.workers}
    parts = [_text(item, more, lines[item.rank]) for item, more in found]
    return index, "\n".join(part[: _TEXT // max(1, len(parts))] for part in parts)


def _look(subject: Subject, *, deep: bool, deadline: float) -> tuple[WorkerEvidence, str]:
    """One worker: what goes into the index, and its native stacks as text."""
    state = os_state(subject.pid)
    found = WorkerEvidence(
        rank=subject.rank,
        pid=subject.pid,
        phase=subject.phase,
        step=subject.step,
        os_state=state,
        lines=tuple(line[:500] for line in subject.lines[-_INDEX_LINES:]),
    )
    if not state:
        return replace(found, problem="it has ended"), ""
    found = _with_stacks(found, subject, deadline)
    if not deep:
        return found, ""
    if state in {"T", "t"}:
        return replace(found, flight="the process is stopped"), ""
    try:
        dump = recorder.ask(Path(subject.page), subject.rank, seconds=min(_RECORDER_S, _left(deadline)))
        entries = recorder.last_collectives(dump)
        found = replace(found, collectives=entries, flight="" if entries else "it holds no collective")
    except (recorder.RecorderError, OSError, KeyError, TypeError, ValueError) as error:
        found = replace(found, flight=str(error))
    try:
        return found, stacks.native(subject.pid, seconds=_left(deadline))
    except stacks.StacksError as error:
        return found, f"no native stacks: {error}\n"


def _with_stacks(found: WorkerEvidence, subject: Subject, deadline: float) -> WorkerEvidence:
    try:
        seen = stacks.by_py_spy(subject.pid, found.os_state, seconds=min(_STACKS_S, _left(deadline)))
        return replace(found, source="py-spy", threads=seen)
    except stacks.StacksError as error:
        why = str(error)
    try:
        path = Path(subject.page + STACKS)
        seen = stacks.by_faulthandler(subject.pid, path, seconds=min(_STACKS_S, _left(deadline)))
        return replace(found, source="faulthandler", threads=seen, problem=why)
    except (stacks.StacksError, OSError) as error:
        return replace(found, problem=f"{why}; faulthandler: {error}")


def _left(deadline: float) -> float:
    return max(_LEAST_S, deadline - time.monotonic())


def os_state(pid: int) -> str:
    """The kernel's letter for the process, "" when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _text(found: WorkerEvidence, more: str, lines: Sequence[str]) -> str:
    head = f"=== rank {found.rank}, pid {found.pid}, {found.phase} after step {found.step}, state {found.os_state}"
    parts = [head, *(_stack(thread) for thread in found.threads)]
    if found.problem:
        parts.append(f"problem: {found.problem}")
    if found.flight:
        parts.append(f"no flight recorder: {found.flight}")
    parts += [
        f"{item.group} #{item.seq} {item.name} {item.sizes}{'' if item.done else '  << not done'}"
        for item in found.collectives
    ]
    if more:
        parts.append(f"--- with native code\n{more}")
    if lines:
        parts.append("--- last output\n" + "\n".join(lines))
    return "\n".join(parts) + "\n"


def _stack(thread: Thread) -> str:
    return "\n".join(
        [f"thread {thread.name}{' (active)' if thread.active else ''}", *map(_frame, thread.frames)]
    )


def _frame(frame: Frame) -> str:
    return f"    {frame.name}" + (f" ({frame.file}:{frame.line})" if frame.file else "")


def main() -> int:
    """Do the task on stdin."""
    task = decoded(sys.stdin.buffer.read())
    die_with_parent(task.agent)
    directory = Path(task.directory)
    directory.mkdir(parents=True, exist_ok=True)
    index, text = collect(task)
    name = f"{task.node}.txt"
    (directory / name).write_text(text, encoding="utf-8", errors="replace")
    took = round(time.monotonic() - task.began, 3)
    write_evidence(directory, replace(index, took_s=took, files=(name,)))
    return 0


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    finally:
        sys.stderr.flush()
        os._exit(code)  # a thread that still waits for something does not keep us
