"""One worker as its agent sees it: page, output, progress on our clock, and its end."""

import math
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from contract.beat import WorkerBeat
from contract.exits import KERNEL_OOM, WorkerExit
from contract.page import PageReading, WorkerPage
from contract.states import Phase
from slurm.agent.effort import Doing, Effort
from slurm.agent.output import WorkerOutput

_SIGUSR1_BIT = 1 << (signal.SIGUSR1 - 1)
_PATIENCE_S = 30.0  # for a program that is starting and will catch SIGUSR1 soon
_SPENT_S = 60.0  # the mean time of a phase is told over so many seconds
_SPENT_EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """What the page said when a step had just been counted, on our clock."""

    at: float
    step: int
    spent: Mapping[str, float]


@dataclass(kw_only=True)
class Worker:
    """`moved_at`: when its counter moved last; `ended_at`: when we heard of its end. Both on our clock."""

    rank: int
    local_rank: int
    page: WorkerPage
    page_path: Path
    output: WorkerOutput
    reading: PageReading
    moved_at: float
    stepped: bool = False  # the first step of the generation is done: from here on waits are the usual ones
    usual: dict[str, float] = field(default_factory=dict)  # phase → longest wait in it that ended well
    effort: Effort = field(default_factory=Effort)
    marks: deque[_Mark] = field(default_factory=deque)
    pid: int = 0
    exit: WorkerExit | None = None
    ended_at: float = 0.0
    save_wanted_at: float = math.nan
    save_sent: bool = False

    @property
    def alive(self) -> bool:
        return self.exit is None

    def blink(self, now: float) -> None:
        """We have not looked for a while: what stood still in that time may have moved just as well."""
        self.moved_at = now

    def look(self, now: float) -> bool:
        """Read the page; True if it is news: a save's end, or another kind of phase (inside a step they alternate)."""
        before, self.reading = self.reading, self.page.read()
        if self.reading.counter != before.counter:
            if self.stepped:
                word = before.phase.word
                self.usual[word] = round(max(self.usual.get(word, 0.0), now - self.moved_at), 3)
            self.stepped = self.stepped or (before.phase.in_step and self.reading.step > before.step)
            self.moved_at = now
            if self.stepped and self.reading.step > before.step:
                self._keep_mark(now)
        changed = self.reading.save_error != before.save_error
        return changed or _kind(self.reading.phase) is not _kind(before.phase)

    def _keep_mark(self, now: float) -> None:
        marks = self.marks
        if not marks or now - marks[-1].at >= _SPENT_EVERY_S:
            marks.append(_Mark(at=now, step=self.reading.step, spent=self.reading.spent))
        while len(marks) > 2 and now - marks[1].at >= _SPENT_S:
            marks.popleft()

    def spent(self) -> dict[str, float]:
        """Mean seconds a step in each phase, over about the last minute; {} before there are two marks."""
        if len(self.marks) < 2:
            return {}
        first, last = self.marks[0], self.marks[-1]
        steps = last.step - first.step
        return {word: round((last.spent[word] - first.spent[word]) / steps, 5) for word in last.spent}

    def ended(self, *, code: int, ordered: bool, node: str, now: float, oom: int = 0) -> WorkerExit:
        """Note the end, with everything that the worker left to say. `oom`: the kernel's kills of a moment ago."""
        self.output.drain()
        self.look(now)
        found = self.reading.exception or {}
        if code == -signal.SIGKILL and oom > 0 and not ordered:
            text = f"the kernel was out of memory and killed {oom} process{'es' if oom > 1 else ''} of {node}"
            found = {"type": KERNEL_OOM, "text": text}
        self.ended_at = now
        self.exit = WorkerExit(
            rank=self.rank,
            node=node,
            code=code,
            ended_s=now,
            ordered=ordered,
            step=self.reading.step,
            phase=self.reading.phase,
            exception_type=found.get("type", ""),
            exception_text=found.get("text", ""),
            last_lines=self.output.last_lines,
        )
        return self.exit

    def wants_save_signal(self, now: float) -> bool:
        """Whether SIGUSR1 should go out now: once, and not before the program catches it (it would die of it)."""
        if self.save_sent or not self.alive or not self.pid:
            return False
        if math.isnan(self.save_wanted_at):
            self.save_wanted_at = now
        self.save_sent = _catches_usr1(self.pid) or now - self.save_wanted_at > _PATIENCE_S
        return self.save_sent

    def beat(self, now: float) -> WorkerBeat:
        runs = self.exit is None and self.pid
        doing = self.effort.look(self.pid, self.reading.counter, now) if runs else Doing()
        return WorkerBeat(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.pid,
            step=self.reading.step,
            micro_step=self.reading.micro_step,
            phase=self.reading.phase,
            loss=self.reading.loss,
            tokens=self.reading.tokens,
            idle_s=round(now - self.moved_at, 3),
            exit_code=None if self.exit is None else self.exit.code,
            exit_age_s=0.0 if self.exit is None else round(now - self.ended_at, 3),
            os_state=doing.os_state,
            busy=doing.busy,
            quiet_s=doing.quiet_s,
            spent=self.spent(),
            save_error=self.reading.save_error,
        )

    def close(self) -> None:
        self.output.close()
        self.page.close()


def new_worker(path: Path, output: WorkerOutput, *, rank: int, local_rank: int, now: float) -> Worker:
    """A worker that is about to start, with a fresh page."""
    page = WorkerPage.create(path, rank=rank)
    return Worker(
        rank=rank,
        local_rank=local_rank,
        page=page,
        page_path=path,
        output=output,
        reading=page.read(),
        moved_at=now,
    )


def _kind(phase: Phase) -> Phase:
    return Phase.FORWARD if phase.in_step else phase


def _catches_usr1(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) & _SIGUSR1_BIT)
