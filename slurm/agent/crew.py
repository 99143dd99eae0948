"""The workers of this node and the warm process that forks them: start, end, and hear of every exit."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from contract.beat import WorkerBeat
from contract.config import RunConfig
from contract.exits import WorkerExit
from slurm.agent.memory import MemoryWatch
from slurm.agent.warm import Ended, Exited, Lost, Ready, Started, WarmProcess
from slurm.agent.worker import Worker

_END_PATIENCE_S = 5.0  # after this the warm process itself is killed, and the kernel ends what it has forked


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a worker runs: `entry` in a fork of the warm process that has `preload` imported, else `command`."""

    command: tuple[str, ...]
    entry: str = ""
    preload: str = ""

    @property
    def takes_socket(self) -> bool:
        """Whether rank 0 is our trainer, which takes over the listening socket that we hold for it."""
        return self.command[-2:] == ("-m", "trainer")


def program_of(config: RunConfig) -> Program:
    """The program in [job]: ciuic's trainer unless a command is given. The trainer is known by name only."""
    if config.job.command:
        return Program(command=tuple(config.job.command))
    command = (sys.executable, "-P", "-m", "trainer")
    if not config.job.warm:
        return Program(command=command)
    return Program(command=command, entry="trainer.main:main", preload="trainer.preload")


@dataclass(kw_only=True)
class Crew:
    """All workers of the node in one generation; a worker's number is its local rank."""

    node: str
    program: Program
    environment: Mapping[str, str]
    clock: Callable[[], float]
    tell: Callable[[str], None]
    terminated: bool = False
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    workers: dict[int, Worker] = field(default_factory=dict)
    _warm: WarmProcess | None = None
    _cold: str = ""
    _failed_starts: int = 0
    _ending_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether workers can be started at once."""
        return self._warm is not None and self._warm.ready and self._ending_since is None

    @property
    def hopeless(self) -> bool:
        """The warm process died twice before it could take an order."""
        return self._failed_starts > 1

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.alive]

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        return tuple(worker.exit for worker in self.workers.values() if worker.exit)

    def beats(self, now: float) -> tuple[WorkerBeat, ...]:
        """Every worker's line of the beat."""
        self.memory.mark(now)
        return tuple(worker.beat(now) for worker in self.workers.values())

    def usual(self) -> dict[str, float]:
        """Phase → longest wait of any worker here."""
        longest: dict[str, float] = {}
        for worker in self.workers.values():
            for word, seconds in worker.usual.items():
                longest[word] = max(seconds, longest.get(word, 0.0))
        return longest

    @property
    def descriptor(self) -> int | None:
        """The socket to wait on, None while there is no warm process."""
        return None if self._warm is None else self._warm.socket.fileno()

    def warm_up(self) -> None:
        """Have a warm process; a second one, after a death during its imports, does without them."""
        if self._warm is None:
            module = "" if self._failed_starts else self.program.preload
            self._warm = WarmProcess(self.environment, module)

    def start(self, worker: Worker, environment: Mapping[str, str], *, master: int | None) -> None:
        """Start one worker. Call only when `ready`."""
        assert self._warm is not None
        warm = bool(self.program.entry) and not self._cold
        self.workers[worker.local_rank] = worker
        self._warm.spawn(
            worker.local_rank,
            command=() if warm else self.program.command,
            entry=self.program.entry,
            environment=environment,
            output=worker.output.writer,
            master=master,
        )
        worker.output.close_writer()

    def ask_to_save(self, now: float) -> None:
        """SIGUSR1 to every worker, once."""
        for worker in self.alive:
            if self._warm is not None and worker.wants_save_signal(now):
                self._warm.signal(worker.local_rank, signal.SIGUSR1)

    def end(self) -> None:
        """Kill all workers, stopped and hung ones too; `over` when the last is reaped."""
        if self._ending_since is None and self.alive:
            self._ending_since = self.clock()
            if self._warm is not None:
                self._warm.end()

    def over(self) -> bool:
        """Whether no worker is left. Presses on when that takes long."""
        if self._ending_since is None:
            return not self.alive
        if self._warm is not None and self.clock() - self._ending_since > _END_PATIENCE_S:
            self.tell("the warm process does not end its workers; killing it")
            self._ending_since = self.clock()
            self._warm.kill()
        return False

    def clear(self) -> None:
        """Forget the workers of a generation that is over."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()

    def hear(self) -> list[WorkerExit]:
        """Take in what has happened; the exits that are new."""
        found: list[WorkerExit] = []
        for event in self._warm.events() if self._warm is not None else []:
            match event:
                case Ready(why_not_warm=reason):
                    self._cold = reason
                    if reason:
                        self.tell(f"workers are started from scratch: {reason}")
                case Started(worker=number, pid=pid):
                    self.workers[number].pid = pid
                case Exited(worker=number, code=code, ordered=ordered):
                    found.append(self._ended(self.workers[number], code=code, ordered=ordered))
                case Ended():
                    self._ending_since = None
                case Lost():
                    found += self._lost_warm()
        return found + self._reap()

    def _lost_warm(self) -> list[WorkerExit]:
        """The kernel kills its workers, and they become our children, if we know of them."""
        assert self._warm is not None
        if not self._warm.ready:
            self._failed_starts += 1
        self.tell(f"the warm process {self._warm.pid} is gone")
        self._warm.close()
        self._warm = None
        unknown = [worker for worker in self.alive if not worker.pid]
        return [self._ended(worker, code=-signal.SIGKILL, ordered=False) for worker in unknown]

    def _reap(self) -> list[WorkerExit]:
        """Our own children: the warm process, and what dead processes of ours have left to us."""
        found = []
        with contextlib.suppress(ChildProcessError):
            while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                worker = next((one for one in self.alive if one.pid == seen.si_pid), None)
                if worker is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(seen.si_pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(seen.si_pid, 0)[1])
                if worker is not None:
                    ordered = self._ending_since is not None and code == -signal.SIGKILL
                    found.append(self._ended(worker, code=code, ordered=ordered))
        if self._warm is None and not self.alive:
            self._ending_since = None
        return found

    def _ended(self, worker: Worker, *, code: int, ordered: bool) -> WorkerExit:
        # A cancelled job's processes get SIGTERM all at once, we too: such an end explains nothing either.
        ordered = ordered or (self.terminated and code in {-signal.SIGTERM, -signal.SIGKILL})
        oom = self.memory.killed()
        return worker.ended(code=code, ordered=ordered, node=self.node, now=self.clock(), oom=oom)
