"""What others have written: control.json, the go file, the peers' beats, the supervisor's counter. Opened afresh."""

import os
from collections.abc import Callable
from pathlib import Path

from contract import files
from contract.beat import Beat, read_beat
from contract.control import Control, Go, read_control, read_go
from contract.layout import Root, RunDir

LOCAL_S = 0.1
CLUSTER_S = 1.0  # thousands of agents ask the same file server
_PEERS_S = 1.0
_SUPERVISOR_S = 2.0


class News:
    """The newest of each, read at intervals. What cannot be read keeps its old value: unknown is not a change."""

    def __init__(self, run: RunDir, attempt: int, *, local: bool, tell: Callable[[str], None]) -> None:
        self.control: Control | None = None
        self.go: Go | None = None
        self.peers: dict[str, Beat] = {}
        self.supervisor_moved_at = 0.0
        self._run, self._attempt, self._tell = run, attempt, tell
        self._interval = LOCAL_S if local else CLUSTER_S
        self._supervisor_beat = Root(path=run.path.parent).supervisor(os.getuid()).beat
        self._counter: bytes | None = None
        self._read_at = self._peers_at = self._supervisor_at = float("-inf")
        self._problem = ""

    def refresh(self, now: float, *, peers_matter: bool) -> None:
        """Read what is due."""
        if now - self._read_at >= self._interval:
            self._read_at = now
            self._try(self._read_orders)
        if now - self._peers_at >= (self._interval if peers_matter else _PEERS_S):
            self._peers_at = now
            self._try(self._read_peers)
        if now - self._supervisor_at >= _SUPERVISOR_S:
            self._supervisor_at = now
            self._try(lambda: self._read_supervisor(now))

    def _read_orders(self) -> None:
        found = read_control(self._run)
        # A stale answer of the file system must not take an order back.
        if found is not None and (self.control is None or found.at >= self.control.at):
            self.control = found
        if self.go is None:
            self.go = read_go(self._run, self._attempt, 1)

    def _read_peers(self) -> None:
        directory = self._run.attempt(self._attempt).beats
        for path in _entries(directory):
            beat = read_beat(path)
            if beat is not None and beat.attempt == self._attempt:
                self.peers[path.name] = beat

    def _read_supervisor(self, now: float) -> None:
        counter = files.read_bytes(self._supervisor_beat)
        if counter is not None and counter != self._counter:
            self.supervisor_moved_at = now
            self._counter = counter

    def _try(self, read: Callable[[], None]) -> None:
        try:
            read()
        except (OSError, ValueError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._tell(f"cannot be read: {error}")


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
