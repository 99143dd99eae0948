"""The agent's end of the warm process: start it, give it orders, hear from it."""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm.agent.spawner import PACKET


@dataclass(frozen=True, kw_only=True)
class Ready:
    """It takes orders. `why_not_warm`: why workers are better started from scratch, "" when there is no reason."""

    why_not_warm: str


@dataclass(frozen=True, kw_only=True)
class Started:
    worker: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class Exited:
    """`ordered`: our own kill ended it."""

    worker: int
    code: int
    ordered: bool


@dataclass(frozen=True, kw_only=True)
class Ended:
    """All workers are gone, as ordered."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The warm process is dead, and its workers are dying with it."""


Event = Ready | Started | Exited | Ended | Lost


class WarmProcess:
    """One such process. `worker` numbers are the caller's."""

    def __init__(self, environment: Mapping[str, str], module: str) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.socket, theirs):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, PACKET)
        self.socket.setblocking(False)
        theirs.set_inheritable(True)
        arguments = [str(os.getpid()), str(theirs.fileno()), *([module] if module else [])]
        command = [sys.executable, "-P", "-m", "slurm.agent.spawner", *arguments]
        self.pid = os.posix_spawn(sys.executable, command, dict(environment))
        theirs.close()
        self.ready = False
        self.lost = False

    def spawn(
        self,
        worker: int,
        *,
        command: Sequence[str],
        entry: str,
        environment: Mapping[str, str],
        output: int,
        master: int | None,
    ) -> None:
        """Start one worker; the descriptors are ours to close afterwards."""
        descriptors = [output] if master is None else [output, master]
        order = {
            "order": "spawn",
            "worker": worker,
            "command": list(command),
            "entry": entry,
            "environment": dict(environment),
        }
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `Lost` will be heard
            socket.send_fds(self.socket, [json.dumps(order).encode()], descriptors)

    def signal(self, worker: int, number: signal.Signals) -> None:
        self._send({"order": "signal", "worker": worker, "signal": int(number)})

    def end(self) -> None:
        """Kill all workers; `Ended` follows."""
        self._send({"order": "end"})

    def kill(self) -> None:
        """The last resort for one that does not answer: the kernel ends its workers with it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go; it ends by itself when it sees that."""
        self.socket.close()

    def events(self) -> list[Event]:
        """What has been reported since the last call."""
        found: list[Event] = []
        while not self.lost:
            try:
                data = self.socket.recv(PACKET)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            event = _event(data)
            self.ready = self.ready or isinstance(event, Ready)
            self.lost = isinstance(event, Lost)
            found.append(event)
        return found

    def _send(self, order: Mapping[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.send(json.dumps(order).encode())


def _event(data: bytes) -> Event:
    if not data:
        return Lost()
    value = json.loads(data)
    match value["event"]:
        case "ready":
            return Ready(why_not_warm=value["why_not_warm"])
        case "started":
            return Started(worker=value["worker"], pid=value["pid"])
        case "exited":
            return Exited(worker=value["worker"], code=value["code"], ordered=value["ordered"])
        case "ended":
            return Ended()
        case other:
            raise ValueError(f"the warm process reported {other!r}")
