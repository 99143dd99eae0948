"""One look at a run directory. Opens everything afresh; remembers only what one look cannot show.

That is: when each node's beat last moved, since when we have been looking, and what did not change since. A file
that cannot be read becomes a problem in words, never an exception and never "nothing there" (rule 3).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from contract.beat import Beat, read_beat
from contract.config import RunConfig
from contract.control import Control, read_claim, read_control, read_go
from contract.copies.report import Report, read_report
from contract.copies.target import Kind, wanted
from contract.exits import WorkerExit, read_exits
from contract.files import lock_is_held
from contract.layout import AttemptDir, RunDir
from contract.requests import read_requests
from contract.states import AgentPhase, ControlPhase, JobState
from supervisor.adapters.checkpoints import CheckpointReader, ResumeReader
from supervisor.adapters.curves import CurveReader
from supervisor.adapters.foreign import ForeignProgram, written
from supervisor.adapters.lag import BeatLag
from supervisor.adapters.log_reader import LogReader
from supervisor.adapters.watcher import Watcher
from supervisor.core.job_words import slurms_own
from supervisor.core.observation import CheckpointLook, JobLook, LogLine, NodeSeen, Observation

T = TypeVar("T")
_STALL_S = (
    5.0  # no node of the run has beaten for so long, or for so many beats (or looks) where they are slower
)
_STALL_BEATS = 3
_TAIL = 16_384  # bytes of a job's output that may explain its end


@dataclass(kw_only=True)
class _Pulse:
    """A node's newest beat, when (our monotonic clock) its sequence last moved, and whether we have seen it move."""

    beat: Beat | None
    moved_at: float
    seen_to_move: bool


class Observer:
    """Looks at one run, tick after tick."""

    def __init__(
        self,
        run: RunDir,
        read: Callable[[Path], Beat | None] = read_beat,
        watcher: Watcher | None = None,
    ) -> None:
        """`watcher`: for the logs to be read as they grow; without it they are left alone."""
        self._run = run
        self._read = read
        self._logs = None if watcher is None else LogReader(watcher)
        self._pulses: dict[tuple[int, str], _Pulse] = {}
        self._usual: dict[str, float] | None = None
        self._checkpoints = CheckpointReader(run)
        self._resumes = ResumeReader(run)
        self._foreign = ForeignProgram(run.path)
        self._curves = CurveReader(run)
        self._lag = BeatLag(run.path)
        self._lag_s = 0.0
        self._at = (0, 0)
        self._since = 0.0
        self._running_since: float | None = None
        self._looked_at: float | None = None
        self._awake = False  # whether the look before this one was recent, and of an attempt
        self._beaten_at: float | None = None  # when any node's beat moved last
        self._stall_s = _STALL_S
        self._problems: list[str] = []
        self._job_words: dict[Path, tuple[str, ...]] = {}

    def look(self, config: RunConfig, job: Callable[[int], JobLook], now: float) -> Observation:
        """What can be seen now. `now` is this process's monotonic clock; `job` tells the queue's word on an attempt."""
        self._problems = []
        control = self._try(lambda: read_control(self._run), None)
        attempt, generation = control.at if control else (0, 0)
        self._mind_the_gap((attempt, generation), config.supervisor.tick_s, now)
        place = self._run.attempt(attempt)
        queue = job(attempt)  # first: what a job wrote before its end is then read below
        self._mind_the_job(queue.state, now)
        members, master, port = self._membership(control)
        claim = self._try(lambda: read_claim(self._run, attempt), None)
        nothing: dict[tuple[int, int], int] = {}
        resumes = self._try(lambda: self._resumes.look(attempt), nothing)
        self._lag_s = self._lag.seconds(config.monitor.beat_s, now)
        self._stall_s = max(_STALL_S, _STALL_BEATS * max(config.monitor.beat_s, config.supervisor.tick_s))
        nodes = self._nodes(place, attempt, now, local=config.job.executor == "local")
        at = (attempt, generation)
        nobody: tuple[WorkerExit, ...] = ()
        exits = self._try(lambda: read_exits(self._run, attempt, generation), nobody)
        return Observation(
            attempt=attempt,
            generation=generation,
            job=queue,
            control=control,
            claim_job=claim.job_id if claim else "",
            members=members,
            master=master,
            port=port,
            nodes=nodes,
            exits=exits,
            resume_step=self._resumed(config, resumes, at, members, nodes),
            restored_from=self._resumes.restored_from(at),
            checkpoint=self._try(
                lambda: self._checkpoint(config, resumes, at, written=written(at, nodes, exits)), None
            ),
            requests=tuple(self._try(lambda: read_requests(self._run), [])),
            used=self._try(lambda: highest_used(self._run), 0),
            usual=dict(self._learned()),
            curve=self._try(lambda: self._curves.look((attempt, generation), config), None),
            lag_s=self._lag_s,
            watched_s=now - self._since,
            running_s=0.0 if self._running_since is None else now - self._running_since,
            problems=tuple(self._problems),
            logs=self._look_at_logs(place, generation, now),
            job_lines=self._job_lines(place) if queue.state.ended else (),
            copies=self._copies(config),
        )

    def _resumed(
        self,
        config: RunConfig,
        resumes: dict[tuple[int, int], int],
        at: tuple[int, int],
        members: tuple[str, ...],
        nodes: tuple[NodeSeen, ...],
    ) -> int | None:
        """As the program recorded it; of one that keeps no such record, as its first marks show."""
        foreign = bool(config.job.command) and not resumes
        return self._foreign.resumed(at, members, nodes) if foreign else resumes.get(at)

    def _checkpoint(
        self, config: RunConfig, resumes: dict[tuple[int, int], int], at: tuple[int, int], *, written: bool
    ) -> CheckpointLook | None:
        if config.checkpoint.foreign_glob:
            return self._foreign.checkpoint(config.checkpoint, at, written=written)
        return self._checkpoints.look(resumes)

    def _copies(self, config: RunConfig) -> dict[Kind, Report]:
        found: dict[Kind, Report] = {}
        for kind in wanted(config):
            report = self._try(lambda kind=kind: read_report(self._run, kind), None)  # type: ignore[misc]
            if report is not None:
                found[kind] = report
        return found

    def close(self) -> None:
        if self._logs is not None:
            self._logs.close()

    def _look_at_logs(self, place: AttemptDir, generation: int, now: float) -> tuple[LogLine, ...]:
        """Logs complete the picture: one that cannot be read is no problem of the run (rule 3 is about evidence)."""
        if self._logs is None:
            return ()
        try:
            return self._logs.look(place, generation, now)
        except OSError:
            return ()

    def _job_lines(self, place: AttemptDir) -> tuple[str, ...]:
        """From the end of the output of the job's shell, which is also srun's. Read once an attempt: it is over."""
        if place.path not in self._job_words:
            found: list[str] = []
            for path in sorted(place.submission.glob("*_0_log.out")):
                found += self._try(lambda path=path: _tail(path), [])  # type: ignore[misc]
            self._job_words = {place.path: slurms_own(found)}
        return self._job_words[place.path]

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        """What `read` reads, or `otherwise` and a problem."""
        try:
            return read()
        except (OSError, ValueError) as error:
            self._problems.append(str(error))
            return otherwise

    def _mind_the_gap(self, at: tuple[int, int], tick_s: float, now: float) -> None:
        """Eyes that were shut judge nothing: after a pause of ours every clock starts again."""
        paused = self._looked_at is None or now - self._looked_at > max(5.0, 10 * tick_s)
        if paused:
            for pulse in self._pulses.values():
                pulse.moved_at, pulse.seen_to_move = now, False
            self._lag.forget_moves()
        if paused or at != self._at:
            self._since = now
        if paused or at[0] != self._at[0]:
            self._running_since = None
        if at[0] != self._at[0]:
            self._pulses = {key: pulse for key, pulse in self._pulses.items() if key[0] == at[0]}
            self._lag.forget_moves()
        self._awake = not paused and self._at[0] > 0
        self._at, self._looked_at = at, now

    def _mind_the_stall(self, now: float) -> None:
        """A beat has moved. When none had for a while, the file system stood still, and with it whoever reads or saves.

        The first beats after that tell of standstills that explain themselves: watching begins again.
        """
        if self._beaten_at is not None and now - self._beaten_at > self._stall_s + self._lag_s:
            self._since = now
        self._beaten_at = now

    def _mind_the_job(self, state: JobState, now: float) -> None:
        if state is JobState.RUNNING:
            self._running_since = now if self._running_since is None else self._running_since
        elif state is not JobState.UNKNOWN:
            self._running_since = None

    def _membership(self, control: Control | None) -> tuple[tuple[str, ...], str, int]:
        if control is None:
            return (), "", 0
        if control.generation > 1 or control.phase is not ControlPhase.PREPARE:
            return control.members, control.master, control.port
        go = self._try(lambda: read_go(self._run, control.attempt, 1), None)
        return (go.members, go.master, go.port) if go else ((), "", 0)

    def _nodes(self, place: AttemptDir, attempt: int, now: float, *, local: bool) -> tuple[NodeSeen, ...]:
        nobody: list[str] = []
        beating = self._try(lambda: _names(place.beats), nobody)
        living = self._try(lambda: _names(place.alive), nobody)
        names = {*beating, *living}
        return tuple(self._node(place, attempt, name, now, local=local) for name in sorted(names))

    def _node(self, place: AttemptDir, attempt: int, name: str, now: float, *, local: bool) -> NodeSeen:
        # Life before the beat: an agent that ended in between has written its last beat by now. The other way round it
        # would look dead without having left. Elsewhere the flock may not reach, so that "free" would say nothing.
        alive = self._try(lambda: lock_is_held(place.alive_of(name)), None) if local else None
        beat = self._try(lambda: _usable(self._read(place.beat(name))), None)
        first = _Pulse(beat=beat, moved_at=now, seen_to_move=self._awake)  # it has come while we watched
        pulse = self._pulses.setdefault((attempt, name), first)
        if beat is not None and (pulse.beat is None or _moved(pulse.beat, beat)):
            self._learn(beat)
            self._lag.moved(name, now)
            self._mind_the_stall(now)
            pulse.beat, pulse.moved_at, pulse.seen_to_move = beat, now, True
        silent_s = now - pulse.moved_at
        return NodeSeen(node=name, beat=pulse.beat, silent_s=silent_s, alive=alive, moved=pulse.seen_to_move)

    def _learn(self, beat: Beat) -> None:
        usual = self._learned()
        for phase, seconds in beat.usual.items():
            usual[phase] = max(seconds, usual.get(phase, 0.0))

    def _learned(self) -> dict[str, float]:
        """Phase → usual wait. The first time from every beat that earlier attempts left behind."""
        if self._usual is None:
            self._usual = {}
            for path in self._run.attempts.glob("*/beats/*"):
                beat = self._try(lambda path=path: read_beat(path), None)  # type: ignore[misc]
                if beat is not None:
                    self._learn(beat)
        return self._usual


def _usable(beat: Beat | None) -> Beat | None:
    """The beat. Workers of an agent that clears up or is ready are leftovers of the generation before."""
    leftovers = beat is not None and beat.phase in {AgentPhase.STARTING, AgentPhase.READY}
    return replace(beat, workers=()) if beat is not None and leftovers else beat


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read(_TAIL).decode(errors="replace").splitlines()


def _moved(old: Beat, new: Beat) -> bool:
    return (old.pid, old.sequence) != (new.pid, new.sequence)


def highest_used(run: RunDir) -> int:
    """The highest attempt whose directory shows that it was handed in or ran, whatever the journal says; 0: none."""
    numbers = sorted((int(name) for name in _names(run.attempts) if name.isdecimal()), reverse=True)
    return next((number for number in numbers if _used(run.attempt(number))), 0)


def _used(place: AttemptDir) -> bool:
    marks = (place.job, place.claim)
    return any(mark.exists() for mark in marks) or bool(_names(place.exits)) or any(place.path.glob("go-g*"))


def _names(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if not name.startswith(".")]  # noqa: PTH208 - thousands a tick
    except FileNotFoundError:
        return []
