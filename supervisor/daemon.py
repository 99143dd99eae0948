"""The daemon: finds the runs under a root and gives each its rounds. Its end leaves every job alone."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from contract.history import History
from contract.layout import Root
from supervisor.adapters.leadership import Leadership, OvertakenError
from supervisor.adapters.ping import Ping
from supervisor.adapters.post import TIMEOUT_S
from supervisor.adapters.queues import Queues
from supervisor.adapters.stop import StopSignal
from supervisor.adapters.systemd import Notifier
from supervisor.choose import runs_under
from supervisor.lanes import Lanes, Turn
from supervisor.mail import Mail
from supervisor.seen import RunSeen
from supervisor.tick import Supervision, World

if TYPE_CHECKING:
    from supervisor.adapters.metrics import Exporter
    from supervisor.page.page import Page, Place

_DISCOVER_S = 1.0
_IDLE_S = 0.5  # the counter of the leadership moves at least so often
_ONCE_LIMIT_S = 120.0
_READY_S = 60.0  # a run whose first look is not done by then does not keep the others waiting
_PATIENCE_S = 1.0  # a round that takes longer keeps nobody waiting
_TELL_LATE_S = 5.0
_UNPACED_S = 1.0  # rounds once a second cost so little that nobody need slow down
_SLOWEST_S = 4.0  # the longest wait for that; after five seconds eyes count as shut (adapters/rundir.py)
_SHARE = 0.1  # of a core, at most: with more to look at, rounds come less often


@dataclass(frozen=True, kw_only=True)
class Options:
    """`once`: one complete look at every run, what is due done, and out. `until_done`: out when all runs are final.

    `ping_s`: seconds between two signs of life, where CIUIC_PING_URL names somebody who waits for them.
    `metrics_port`: where /metrics is served on this host; 0: nowhere. `page`: where the live page is; None: nowhere.
    """

    once: bool = False
    until_done: bool = False
    ping_s: float = 60.0
    metrics_port: int = 0
    page: "Place | None" = None


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """`wall`: UTC seconds, for the journal; `monotonic`: seconds of this process's own clock, for everything else."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


class Daemon:
    """One supervisor at work. `say` takes the lines of the log."""

    def __init__(
        self,
        root: Root,
        leadership: Leadership,
        options: Options,
        say: Callable[[str], None],
        clocks: Clocks = Clocks(),
    ) -> None:
        self._now = clocks.monotonic
        self._root = root
        self._leadership = leadership
        self._options = options
        self._notify = Notifier()
        self._ready = False
        self._runs: dict[str, Supervision] = {}
        self._discovered_at: float | None = None
        self._turn = Turn()
        self._lanes = Lanes(self._turn, _PATIENCE_S)
        self._costs: dict[str, float] = {}  # run → processor time of a round, smoothed
        # Runs whose round does not come back → since when (monotonic), and whether that was told.
        self._late: dict[str, tuple[float, bool]] = {}
        self._ping = Ping(os.environ, options.ping_s, say, clocks.monotonic)
        self._world = make_world(
            leadership, say, lambda: [run.history for run in self._runs.values()], self._turn, clocks
        )
        self._exporter = _exporter(self._seen, options.metrics_port) if options.metrics_port else None
        self._page = _page(options.page, root, self._seen, say) if options.page else None

    def run(self) -> int:
        """Until told to stop (0), or overtaken by another supervisor (1)."""
        self._world.say(f"supervises {self._root.path} (epoch {self._leadership.epoch}, pid {os.getpid()})")
        began = self._now()
        try:
            with StopSignal(reload=self._notify.listened) as stop:
                while not stop.asked:
                    if stop.reload_asked():
                        self._reload()
                        began = self._now()
                    self._timed_rounds(stop)
                    self._tell(self._now() - began)
                    if self._finished(self._now() - began):
                        break
                    stop.wait(self._pause())
                self._end()
        except OvertakenError as error:
            self._world.say(str(error))
            return 1
        finally:
            self._leadership.release()
        return 0

    def _timed_rounds(self, stop: StopSignal) -> None:
        began = self._now()
        self._rounds(stop)
        if self._exporter is not None:
            self._exporter.round(self._now() - began)
        if self._page is not None:
            self._page.ticked()

    def _seen(self) -> list[RunSeen]:
        return [
            RunSeen(run=name, history=item.history, shown=item.shown)
            for name, item in list(self._runs.items())
        ]

    def _rounds(self, stop: StopSignal) -> None:
        """One pass over all runs that are due."""
        self._leadership.check()
        self._leadership.beat()
        self._discover()
        for name, supervision in self._runs.items():
            if self._now() >= supervision.due_at and not stop.asked:
                self._lanes.run(name, partial(self._paced_round, name, supervision))
                self._notify("WATCHDOG=1")  # after each: many runs on a slow file system take long together
        self._tell_of_late()
        silent = any(told for _, told in self._late.values())
        broken = any(supervision.broken for supervision in self._runs.values())
        self._ping.beat(healthy=not (silent or broken))

    def _paced_round(self, name: str, supervision: Supervision) -> None:
        """All rounds together take no more than their share of a core: with more to see, they come less often."""
        began = time.thread_time()  # of this round's own thread, also where it was left behind
        supervision.tick()
        cost_s = time.thread_time() - began
        self._costs[name] = cost_s + 0.8 * (self._costs.get(name, cost_s) - cost_s)
        all_s = sum(tuple(self._costs.values()))  # at once: rounds that were late end beside us
        if all_s / _SHARE > _UNPACED_S:
            supervision.due_at = max(supervision.due_at, self._now() + min(_SLOWEST_S, all_s / _SHARE))

    def _tell_of_late(self) -> None:
        """A run whose files do not answer is put off; whoever reads the log learns of it, and of its return."""
        now, late = self._now(), self._lanes.late
        for name in set(self._late) - late:
            since, told = self._late.pop(name)
            if told:
                self._world.say(f"{name}: its round came back after {now - since:.0f} s")
        for name in late:
            since, told = self._late.setdefault(name, (now - _PATIENCE_S, False))
            if not told and now - since >= _TELL_LATE_S:
                self._late[name] = (since, True)
                self._world.say(
                    f"{name}: its round has not come back for {now - since:.0f} s (a read or a command that hangs?);"
                    " the other runs go on, it is taken up again when it answers"
                )

    def _tell(self, elapsed_s: float) -> None:
        """How we are; ready once every run had a complete look (one that cannot have it does not keep us for long)."""
        runs = self._runs.values()
        active = sum(supervision.active for supervision in runs)
        broken = sorted(name for name, supervision in self._runs.items() if supervision.broken)
        trouble = f"; rounds fail of {', '.join(broken[:3])}" if broken else ""
        trouble += f"; no answer from {', '.join(sorted(self._late)[:3])}" if self._late else ""
        becomes = not self._ready and (
            all(run.looked for name, run in self._runs.items() if name not in self._late)
            or elapsed_s > _READY_S
        )
        self._ready = self._ready or becomes
        self._notify(
            *["READY=1"] * becomes, "WATCHDOG=1", f"STATUS={active} of {len(runs)} runs in care{trouble}"
        )

    def _reload(self) -> None:
        """Take up every run afresh: configuration, journal, observer. No job is touched, and the root stays ours."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._world.mail.wait(TIMEOUT_S + 1)
        for name in [name for name in self._runs if name not in self._lanes.late]:
            self._runs.pop(name).release()
        self._discovered_at, self._ready = None, False
        self._world.say("takes up all runs afresh")

    def _discover(self) -> None:
        now = self._now()
        if self._discovered_at is not None and now - self._discovered_at < _DISCOVER_S:
            return
        self._discovered_at = now
        found = {run.run_id: run for run in runs_under(self._root)}
        for name in [name for name in self._runs if name not in found and not self._lanes.is_late(name)]:
            self._runs.pop(name).release()
            self._costs.pop(name, None)
        for name, run in found.items():
            if name not in self._runs:
                self._runs[name] = Supervision(run, self._world)

    def _pause(self) -> float:
        now = self._now()
        due = min((supervision.due_at for supervision in self._runs.values()), default=now + _IDLE_S)
        return min(_IDLE_S, max(0.01, due - now))

    def _finished(self, elapsed_s: float) -> bool:
        """A run whose round has not come back is not done: a submission on a busy machine takes longer than a round."""
        runs = self._runs.values()
        if self._options.once:
            done = not self._late and not self._world.mail.busy and all(run.looked for run in runs)
            return done or elapsed_s > _ONCE_LIMIT_S
        if self._options.until_done:
            return not self._late and all(run.looked and run.resting for run in runs)
        return False

    def _end(self) -> None:
        """Record what is still on its way, let go of every run. No job is touched."""
        self._notify("STOPPING=1")
        self._world.mail.wait(TIMEOUT_S + 1)
        self._lanes.close()
        for name, supervision in self._runs.items():
            if name not in self._lanes.late:  # what hangs ends with this process, and its locks with it
                supervision.release()
        self._world.watcher.close()
        if self._page is not None:
            self._page.close()
        self._world.say("ends; the jobs go on")


def _exporter(runs: Callable[[], list[RunSeen]], port: int) -> "Exporter":
    """Serving already. Its library is loaded only by those who want it.

    Raises:
        OSError: the port is taken.
    """
    from supervisor.adapters.metrics import Exporter  # noqa: PLC0415

    exporter = Exporter(runs, our_version())
    try:
        exporter.serve(port)
    except OSError as error:
        raise OSError(f"--metrics-port {port}: {error}") from error
    return exporter


def _page(
    place: "Place", root: Root, runs: Callable[[], list[RunSeen]], say: Callable[[str], None]
) -> "Page":
    """Serving already.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
    from supervisor.page.page import Page  # noqa: PLC0415

    try:
        page = Page(place, root, runs, say)
    except OSError as error:
        raise OSError(f"--page-host {place.host} --page-port {place.port}: {error}") from error
    say(f"page: {page.address}")
    return page


def make_world(
    leadership: Leadership,
    say: Callable[[str], None],
    histories: Callable[[], Iterable[History]] = tuple,
    turn: Turn | None = None,
    clocks: Clocks = Clocks(),
) -> World:
    """What the supervisions of one process share."""
    mail = Mail(os.environ, say)
    return World(
        leadership=leadership,
        queues=Queues(clocks.monotonic),
        mail=mail,
        say=lambda text: say(mail.scrub(text)),
        clock=clocks.wall,
        monotonic=clocks.monotonic,
        regain=turn.regain if turn is not None else lambda: None,
        version=our_version(),
        histories=histories,
    )


def our_version() -> str:
    try:
        return version("ciuic")
    except PackageNotFoundError:
        return "unknown"
