"""News of directories on local file systems, by events of the kernel; elsewhere whoever asks has to look (poll)."""

import threading
from pathlib import Path

from watchdog.events import (
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer as Events
from watchdog.observers.api import BaseObserver, ObservedWatch

from supervisor.adapters.mounts import file_system_of, is_shared

_MOST = 32  # each costs two threads and one of the 128 inotify instances of a user; the others are polled
_MOUNTS = Path("/proc/self/mountinfo")


class Watched(FileSystemEventHandler):
    """One directory under events. `changed` tells whether anything happened in it since it was asked last."""

    def __init__(self) -> None:
        self._news = threading.Event()
        self._news.set()  # what was there before counts

    def on_any_event(self, event: FileSystemEvent) -> None:
        del event
        self._news.set()

    def changed(self) -> bool:
        news = self._news.is_set()
        self._news.clear()
        return news


class Watcher:
    """The directories that one process has under events."""

    def __init__(self) -> None:
        self._events: BaseObserver | None = None
        self._watches: dict[Watched, ObservedWatch] = {}

    def watch(self, directory: Path) -> Watched | None:
        """None: poll it, for other hosts may write there, or the kernel has no more watches to give."""
        if len(self._watches) >= _MOST or is_shared(file_system_of(directory, _mounts())):
            return None
        watched = Watched()
        kinds: list[type[FileSystemEvent]] = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent]
        try:
            if self._events is None:
                self._events = Events()
                self._events.start()
            self._watches[watched] = self._events.schedule(watched, str(directory), event_filter=kinds)
        except OSError:  # limits of inotify, or the directory is gone
            return None
        return watched

    def forget(self, watched: Watched) -> None:
        """The directory is not asked about any more."""
        watch = self._watches.pop(watched, None)
        if watch is not None and self._events is not None:
            self._events.unschedule(watch)

    def close(self) -> None:
        if self._events is not None:
            self._events.stop()
            self._events.join()
            self._events = None
        self._watches.clear()


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
