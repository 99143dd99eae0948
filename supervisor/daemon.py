"""The daemon: finds the runs under a root and gives each its rounds. Its end leaves every job alone."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from contract.history import History
from contract.layout import Root
from supervisor.adapters.leadership import Leadership, OvertakenError
from supervisor.adapters.ping import Ping
from supervisor.adapters.post import TIMEOUT_S
from supervisor.adapters.queues import Queues
from supervisor.adapters.stop import StopSignal
from supervisor.adapters.systemd import Notifier
from supervisor.choose import runs_under
from supervisor.mail import Mail
from supervisor.tick import Supervision, World

_DISCOVER_S = 1.0
_IDLE_S = 0.5  # the counter of the leadership moves at least so often
_ONCE_LIMIT_S = 120.0
_READY_S = 60.0  # a run whose first look is not done by then does not keep the others waiting


@dataclass(frozen=True, kw_only=True)
class Options:
    """`once`: one complete look at every run, what is due done, and out. `until_done`: out when all runs are final.

    `ping_s`: seconds between two signs of life, where CIUIC_PING_URL names somebody who waits for them.
    """

    once: bool = False
    until_done: bool = False
    ping_s: float = 60.0


class Daemon:
    """One supervisor at work. `say` takes the lines of the log."""

    def __init__(
        self, root: Root, leadership: Leadership, options: Options, say: Callable[[str], None]
    ) -> None:
        self._root = root
        self._leadership = leadership
        self._options = options
        self._notify = Notifier()
        self._ready = False
        self._runs: dict[str, Supervision] = {}
        self._discovered_at: float | None = None
        self._ping = Ping(os.environ, options.ping_s, say)
        self._world = make_world(leadership, say, lambda: [run.history for run in self._runs.values()])

    def run(self) -> int:
        """Until told to stop (0), or overtaken by another supervisor (1)."""
        self._world.say(f"supervises {self._root.path} (epoch {self._leadership.epoch}, pid {os.getpid()})")
        began = time.monotonic()
        try:
            with StopSignal(reload=self._notify.listened) as stop:
                while not stop.asked:
                    if stop.reload_asked():
                        self._reload()
                        began = time.monotonic()
                    self._rounds(stop)
                    self._tell(time.monotonic() - began)
                    if self._finished(time.monotonic() - began):
                        break
                    stop.wait(self._pause())
                self._end()
        except OvertakenError as error:
            self._world.say(str(error))
            return 1
        finally:
            self._leadership.release()
        return 0

    def _rounds(self, stop: StopSignal) -> None:
        """One pass over all runs that are due."""
        self._leadership.check()
        self._leadership.beat()
        self._discover()
        for supervision in self._runs.values():
            if time.monotonic() >= supervision.due_at and not stop.asked:
                supervision.tick()
                self._notify("WATCHDOG=1")  # after each: many runs on a slow file system take long together
        self._ping.beat(healthy=not any(supervision.broken for supervision in self._runs.values()))

    def _tell(self, elapsed_s: float) -> None:
        """How we are; ready once every run had a complete look (one that cannot have it does not keep us for long)."""
        runs = self._runs.values()
        active = sum(supervision.active for supervision in runs)
        broken = sorted(name for name, supervision in self._runs.items() if supervision.broken)
        trouble = f"; rounds fail of {', '.join(broken[:3])}" if broken else ""
        becomes = not self._ready and (all(run.looked for run in runs) or elapsed_s > _READY_S)
        self._ready = self._ready or becomes
        self._notify(
            *["READY=1"] * becomes, "WATCHDOG=1", f"STATUS={active} of {len(runs)} runs in care{trouble}"
        )

    def _reload(self) -> None:
        """Take up every run afresh: configuration, journal, observer. No job is touched, and the root stays ours."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._world.mail.wait(TIMEOUT_S + 1)
        for supervision in self._runs.values():
            supervision.release()
        self._runs.clear()
        self._discovered_at, self._ready = None, False
        self._world.say("takes up all runs afresh")

    def _discover(self) -> None:
        now = time.monotonic()
        if self._discovered_at is not None and now - self._discovered_at < _DISCOVER_S:
            return
        self._discovered_at = now
        found = {run.run_id: run for run in runs_under(self._root)}
        for name in [name for name in self._runs if name not in found]:
            self._runs.pop(name).release()
        for name, run in found.items():
            if name not in self._runs:
                self._runs[name] = Supervision(run, self._world)

    def _pause(self) -> float:
        now = time.monotonic()
        due = min((supervision.due_at for supervision in self._runs.values()), default=now + _IDLE_S)
        return min(_IDLE_S, max(0.01, due - now))

    def _finished(self, elapsed_s: float) -> bool:
        runs = self._runs.values()
        if self._options.once:
            quiet = not self._world.mail.busy
            return (quiet and all(supervision.looked for supervision in runs)) or elapsed_s > _ONCE_LIMIT_S
        if self._options.until_done:
            return all(supervision.looked and supervision.resting for supervision in runs)
        return False

    def _end(self) -> None:
        """Record what is still on its way, let go of every run. No job is touched."""
        self._notify("STOPPING=1")
        self._world.mail.wait(TIMEOUT_S + 1)
        for supervision in self._runs.values():
            supervision.release()
        self._world.say("ends; the jobs go on")


def make_world(
    leadership: Leadership, say: Callable[[str], None], histories: Callable[[], Iterable[History]] = tuple
) -> World:
    """What the supervisions of one process share."""
    mail = Mail(os.environ, say)
    return World(
        leadership=leadership,
        queues=Queues(time.monotonic),
        mail=mail,
        say=lambda text: say(mail.scrub(text)),
        clock=time.time,
        monotonic=time.monotonic,
        version=our_version(),
        histories=histories,
    )


def our_version() -> str:
    try:
        return version("ciuic")
    except PackageNotFoundError:
        return "unknown"
