"""What an agent does next. Pure: everything that it rests on is in the situation, the time included."""

import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from contract.beat import Beat
from contract.control import Control, Go
from contract.layout import by_number
from contract.states import ControlPhase, ExitCode

TOGETHER_S = 600.0  # how long a finished agent waits for the others, from the first that is done
SPARES_GRACE_S = (
    2.0  # generation 1 waits so long for the lower-numbered nodes when spares could take their place
)
TERMINATED = 143  # 128 + SIGTERM, as a shell would say


class Stage(StrEnum):
    """Where an agent is in its generation."""

    CLEARING = "clearing"  # workers of the last one are being ended, or the warm process is not ready
    READY = "ready"
    STARTED = "started"  # workers run, or have ended


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the agent knows at one moment. `codes`: exits of own workers; `alive`: own workers that run.

    `compares`: the nodes are to be compared before generation 1, and it is not over; `misfits`: who must not train.
    """

    node: str
    index: int
    attempt: int
    generation: int
    nodes: int
    spares: int
    stage: Stage
    control: Control | None = None
    go: Go | None = None
    peers: Mapping[str, Beat] = field(default_factory=dict)
    alive: int = 0
    codes: tuple[int, ...] = ()
    save_signal: bool = False
    terminated: bool = False
    hopeless: bool = False
    unfit: str = ""
    compares: bool = False
    misfits: Collection[str] = ()
    ready_s: float = 0.0
    since_done_s: float = 0.0
    unattended_s: float = 0.0
    orphan_s: float = 1800.0

    @property
    def orders(self) -> Control | None:
        """control.json, if it is about this attempt and not older than what we do."""
        control = self.control
        if control is None or control.attempt != self.attempt or control.generation < self.generation:
            return None
        return control

    @property
    def start(self) -> Go | None:
        """Who starts this generation, once that is known."""
        orders = self.orders
        told = (
            orders is not None
            and orders.phase is not ControlPhase.PREPARE
            and orders.generation == self.generation
        )
        if orders is not None and told and orders.members and orders.port:
            return Go(
                attempt=self.attempt,
                generation=self.generation,
                members=orders.members,
                master=orders.master,
                port=orders.port,
            )
        return self.go if self.go is not None and self.go.generation == self.generation else None

    @property
    def save(self) -> bool:
        """Whether this attempt should save and leave: told by a signal (time limit) or by the supervisor."""
        return self.save_signal or (self.orders is not None and self.orders.phase is ControlPhase.SAVE)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do but watch. `done`: the exit code with which we mean to leave, once all can."""

    done: int | None = None


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """End what runs and get ready for this generation."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class Elect:
    """Agent 0 starts generation 1 with these nodes."""

    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Agent 0 calls these nodes, itself first, to be compared."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start our workers."""

    go: Go


@dataclass(frozen=True, kw_only=True)
class Save:
    """Tell the workers to save and leave."""


@dataclass(frozen=True, kw_only=True)
class Leave:
    """End what runs, and exit."""

    code: int
    why: str


Action = Wait | Prepare | Compare | Elect | Start | Save | Leave


def decide(now: Situation) -> Action:
    """The next action. Deciding again in an unchanged situation changes nothing."""
    out = _thrown_out(now)
    if out is not None:
        return out
    orders = now.orders
    if orders is not None and orders.generation > now.generation:
        return Prepare(generation=orders.generation)
    match now.stage:
        case Stage.CLEARING:
            return Wait()
        case Stage.READY:
            return _ready(now)
        case Stage.STARTED:
            return _started(now)
        case other:
            assert_never(other)


def done_code(codes: tuple[int, ...]) -> int | None:
    """The common exit code of workers that all ended well, None when one did not."""
    if any(code not in {ExitCode.FINISHED, ExitCode.SAVED} for code in codes):
        return None
    return ExitCode.SAVED if ExitCode.SAVED in codes else ExitCode.FINISHED


def _thrown_out(now: Situation) -> Leave | None:
    if now.terminated:
        return Leave(code=TERMINATED, why="told to end by a signal")
    if now.hopeless:
        return Leave(code=ExitCode.FAILED, why="the process that starts workers dies each time")
    if now.unfit:
        return Leave(code=ExitCode.FAILED, why=f"this node is not fit: {now.unfit}")
    control = now.control
    if control is not None and control.attempt > now.attempt:
        return Leave(code=ExitCode.REFUSED, why=f"attempt {control.attempt} has taken over")
    if now.orders is not None and now.orders.phase is ControlPhase.LEAVE:
        code = done_code(now.codes) if now.codes and not now.alive else None
        return Leave(code=ExitCode.FAILED if code is None else code, why="ordered to leave")
    return None


def _ready(now: Situation) -> Action:
    if now.save:
        others = now.start.members if now.start else now.orders.members if now.orders else ()
        return _together(now, ExitCode.SAVED, others or tuple(now.peers))
    start = now.start
    if start is None:
        return _unattended(now) or _elect(now)
    if now.node in start.members:
        return Start(go=start)
    return _spare(now, start.members)


def _elect(now: Situation) -> Action:
    """Generation 1 starts without a supervisor, as long as none has said anything else."""
    orders = now.orders
    if now.generation != 1 or orders is None or orders.phase is not ControlPhase.PREPARE:
        return Wait()
    ready = [
        node
        for node, beat in now.peers.items()
        if beat.ready_for == 1
        and beat.port
        and beat.done_code is None
        and node not in {now.node, *now.misfits}
    ]
    if now.index != 0 and not _stands_in(now, ready):
        return Wait()
    if len(ready) + 1 < now.nodes:
        return Wait()
    if len(ready) + 1 < now.nodes + now.spares and now.ready_s < SPARES_GRACE_S:
        return Wait()
    others = sorted(ready, key=by_number)
    if now.compares:
        return Compare(nodes=(now.node, *others))
    return Elect(members=(now.node, *others[: now.nodes - 1]))


def _stands_in(now: Situation, ready: list[str]) -> bool:
    """Whether we elect because an agent has left before the start: it may have been the one whose task that is.

    Two that come to this at once do no harm: the go file is created exclusively.
    """
    left = any(beat.done_code is not None for node, beat in now.peers.items() if node != now.node)
    return left and now.node == min([now.node, *ready], key=by_number)


def _spare(now: Situation, members: tuple[str, ...]) -> Action:
    """Stand by as long as the members train, and leave as they do."""
    codes = [beat.done_code for node in members if (beat := now.peers.get(node)) is not None]
    if len(codes) == len(members) and None not in codes:
        return Leave(code=max(code for code in codes if code is not None), why="the members have left")
    return _given_up(now, members) or _unattended(now) or Wait()


def _started(now: Situation) -> Action:
    members = now.start.members if now.start else ()
    code = _code_of(now)
    if code is None:  # a crash is not done: the supervisor decides, if there is one
        return _given_up(now, members) or _unattended(now) or Wait()
    if now.alive:
        return _given_up(now, members) or (Save() if now.save else Wait())
    return _together(now, code, members)


def _code_of(now: Situation) -> int | None:
    # A program without a handler dies of the signal that we have sent: it had nothing to save.
    codes = tuple(ExitCode.SAVED if now.save and code == -signal.SIGUSR1 else code for code in now.codes)
    return done_code(codes)


def _together(now: Situation, code: int, members: tuple[str, ...]) -> Action:
    """Leave when all are done: a member that is gone cannot take part in another generation."""
    others = [node for node in members if node != now.node]
    waiting = [node for node in others if node not in now.peers or now.peers[node].done_code is None]
    if not waiting:
        return Leave(code=code, why="all are done")
    if now.since_done_s > TOGETHER_S:
        return Leave(code=code, why=f"done, and waited long enough for {', '.join(waiting)}")
    return Wait(done=code)


def _given_up(now: Situation, members: tuple[str, ...]) -> Leave | None:
    gone = [node for node in members if node in now.peers and now.peers[node].done_code == ExitCode.FAILED]
    return Leave(code=ExitCode.FAILED, why=f"{', '.join(gone)} has given up") if gone else None


def _unattended(now: Situation) -> Leave | None:
    """Hold no nodes idle for a supervisor that is not there."""
    if now.unattended_s <= now.orphan_s:
        return None
    why = f"nothing runs here, and no supervisor has moved for {now.unattended_s:.0f} s"
    return Leave(code=ExitCode.FAILED, why=why)
