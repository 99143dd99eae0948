"""Paints what somebody looks at, in one thread of its own: the supervisor's rounds never wait for it, nor it for viewers.

A round swaps one reference to values that never change; this thread reads them when it gets to it.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

from contract.layout import Root
from supervisor.page.channel import Channel
from supervisor.page.pictures import RunPicture, fleet
from supervisor.page.track import Track
from supervisor.seen import RunSeen

FLEET = ""
_EVERY_S = 1.0
_LARGE = 2048  # ranks; of more, and of more than a hundred runs, a picture comes half as often
_MANY = 100
_UNWANTED_S = 30.0  # after the last viewer
_BREATH_S = 0.002
TRACK_S = 10.0  # between two columns of the map of nodes over time
_MOST = 64  # runs that are looked at, at once


class Painter:
    """`channel` and `ticked` are for any thread."""

    def __init__(self, root: Root, runs: Callable[[], Sequence[RunSeen]], say: Callable[[str], None]) -> None:
        self._root = root
        self._runs = runs
        self._say = say
        self._boot = os.urandom(6).hex()
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._pictures: dict[str, RunPicture] = {}
        self._due_at: dict[str, float] = {}
        self._tracks: dict[str, Track] = {}
        self._tracked_at = -TRACK_S
        self._ticked_at = 0.0
        self._wake = threading.Event()
        self._ended = False
        self._trouble: dict[str, str] = {}
        self._thread = threading.Thread(target=self._work, name="painter", daemon=True)
        self._thread.start()

    def ticked(self) -> None:
        """The supervisor has ended a round."""
        self._ticked_at = time.time()
        self._wake.set()

    def channel(self, run: str) -> Channel | None:
        """What is painted of this run, or of all runs; None: there is no such run, or too many are looked at."""
        with self._lock:
            found = self._channels.get(run)
            if found is None:
                if len(self._channels) > _MOST or (run and run not in {seen.run for seen in self._runs()}):
                    return None
                found = self._channels[run] = Channel(self._boot)
            found.wanted_at = time.monotonic()
        self._wake.set()
        return found

    def close(self) -> None:
        self._ended = True
        self._wake.set()
        self._thread.join(5)
        with self._lock:
            for channel in self._channels.values():
                channel.close()

    def _work(self) -> None:
        while not self._ended:
            self._wake.wait(_EVERY_S)
            self._wake.clear()
            if self._ticked_at:
                self._track(time.monotonic())
                self._paint_due(time.monotonic())

    def _track(self, now: float) -> None:
        """Also of runs that nobody looks at: whoever comes wants to know since when."""
        if now - self._tracked_at < TRACK_S:
            return
        self._tracked_at = now
        runs = {seen.run: seen.shown for seen in self._runs() if not seen.history.state.final}
        self._tracks = {name: self._tracks.get(name, Track()) for name in runs}
        for name, shown in runs.items():
            if shown is not None:
                self._tracks[name].add(shown)
                _breathe()

    def _paint_due(self, now: float) -> None:
        with self._lock:
            channels = dict(self._channels)
        due = {
            name: channel
            for name, channel in channels.items()
            if now >= self._due_at.get(name, 0.0) or not channel.of
        }
        if not due:
            return
        runs = {seen.run: seen for seen in self._runs()}
        for name, channel in due.items():
            if channel.viewers == 0 and now - channel.wanted_at > _UNWANTED_S:
                self._forget(name)
            else:
                self._paint(name, channel, runs)

    def _paint(self, name: str, channel: Channel, runs: dict[str, RunSeen]) -> None:
        """One picture. Whatever is wrong with a run's files is told once, and costs the others nothing."""
        ticked_at = self._ticked_at
        try:
            if name == FLEET:
                channel.show(fleet(runs.values()), ticked_at, time.time())
                pace = _EVERY_S * (2 if len(runs) > _MANY else 1)
            else:
                pace = self._paint_run(name, channel, runs.get(name), ticked_at)
            self._trouble.pop(name, None)
        except Exception as error:  # a thread's edge: the page must not end with one file
            pace = _EVERY_S
            what = f"{type(error).__name__}: {error}"
            if self._trouble.get(name) != what:
                self._trouble[name] = what
                self._say(f"page: the picture of {name or 'all runs'} cannot be made: {what}")
        self._due_at[name] = time.monotonic() + pace

    def _paint_run(self, name: str, channel: Channel, seen: RunSeen | None, ticked_at: float) -> float:
        """Seconds to the next picture."""
        if seen is None:  # removed
            self._forget(name)
            return _EVERY_S
        picture = self._pictures.setdefault(name, RunPicture(self._root.run(name), _breathe))
        looked_at = seen.seen_at if seen.shown and not seen.history.state.final else None
        painted = picture.paint(seen)
        if name in self._tracks:
            painted["track"] = self._tracks[name].picture()
        channel.show(painted, looked_at or ticked_at, time.time())
        if picture.unfinished:
            self._wake.set()
            return 0.0
        ranks = len(seen.observation.workers) if seen.observation else 0
        return _EVERY_S * (2 if ranks > _LARGE else 1)

    def _forget(self, name: str) -> None:
        with self._lock:
            channel = self._channels.pop(name, None)
        self._pictures.pop(name, None)
        self._due_at.pop(name, None)
        if channel is not None:
            channel.close()


def _breathe() -> None:
    """Let the supervisor's own thread have the interpreter."""
    time.sleep(_BREATH_S)
