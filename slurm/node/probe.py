"""Measure what a network between two nodes carries, where the advertised rates do not tell: a few TCP streams, bounded.

One node runs a `Sink` on the address in question, the other one sends from its own address on the same network.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

STREAMS = 2
BYTES = 64 << 20  # of all streams together
LIMIT_S = 2.0  # a slow link is known long before it has carried all of them
_CHUNK = 1 << 18
# Two links are told apart only by more than what one and the same link varies.
CLEARLY_FASTER = 1.25


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`bits_per_s` is what arrived; 0 with a `problem` when nothing could be sent."""

    bits_per_s: float
    problem: str = ""


class Sink:
    """Takes bytes from anybody and counts them, in a thread, until it is closed. Sends nothing but the count."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Listens from now on. `ports`: where; an address that cannot be listened at is not among them."""
        self._servers = list[socket.socket]()
        self.ports = dict[str, int]()
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError):
                server = socket.create_server((address, 0), family=family, backlog=64)
                server.setblocking(False)
                self._servers.append(server)
                self.ports[address] = server.getsockname()[1]
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="network probe", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more."""
        self._waker.close()
        self._thread.join()
        for ours in (*self._servers, self._wake):
            ours.close()

    def _serve(self) -> None:
        counts: dict[socket.socket, int] = {}
        buffer = bytearray(_CHUNK)
        with selectors.DefaultSelector() as ready:
            for server in self._servers:
                ready.register(server, selectors.EVENT_READ)
            ready.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    ours = key.fileobj
                    assert isinstance(ours, socket.socket)
                    if ours is self._wake:
                        for left in counts:
                            left.close()
                        return
                    if ours in self._servers:
                        with contextlib.suppress(OSError):
                            connection, _ = ours.accept()
                            connection.setblocking(True)
                            counts[connection] = 0
                            ready.register(connection, selectors.EVENT_READ)
                    else:
                        _take(ours, buffer, counts, ready)


def _take(
    ours: socket.socket, buffer: bytearray, counts: dict[socket.socket, int], ready: selectors.BaseSelector
) -> None:
    """One portion; at the end of the stream, the count goes back: only that shows that all of it arrived."""
    try:
        got = ours.recv_into(buffer)
        counts[ours] += got
        if got:
            return
        ours.sendall(counts[ours].to_bytes(8, "big"))
    except OSError:
        pass
    ready.unregister(ours)
    del counts[ours]
    ours.close()


def throughput(
    local: str, remote: str, port: int, *, streams: int = STREAMS, size: int = BYTES, limit_s: float = LIMIT_S
) -> Measured:
    """Send from the local address to a sink; no longer than the limit and a little for what is under way."""
    results: list[int | str] = []
    start = time.monotonic()
    threads = [
        threading.Thread(
            target=lambda: results.append(_send(local, remote, port, size // streams, start + limit_s)),
            daemon=True,
        )
        for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - start
    arrived = sum(item for item in results if isinstance(item, int))
    problems = [item for item in results if isinstance(item, str)]
    return Measured(bits_per_s=arrived * 8 / elapsed, problem="; ".join(dict.fromkeys(problems)))


def _send(local: str, remote: str, port: int, size: int, deadline: float) -> int | str:
    """Bytes that arrived, or why none did."""
    data = memoryview(bytes(_CHUNK))
    try:
        patience = max(0.1, deadline - time.monotonic())
        with socket.create_connection((remote, port), timeout=patience, source_address=(local, 0)) as out:
            left = size
            while left > 0 and time.monotonic() < deadline:
                left -= out.send(data[: min(left, _CHUNK)])
            out.shutdown(socket.SHUT_WR)
            out.settimeout(10.0)  # what is in the buffers still has to go through a slow link
            answer = out.recv(8, socket.MSG_WAITALL)
        return int.from_bytes(answer, "big") if len(answer) == 8 else f"{remote}: closed without a count"
    except OSError as error:
        return f"{remote} from {local}: {error}"


def fastest(measured: Mapping[str, Measured], standing: str) -> tuple[str, str]:
    """Which of these to take and why. The one that stands keeps its place unless another is clearly faster. Pure."""
    best = max(measured, key=lambda name: measured[name].bits_per_s)
    mine = measured.get(standing, Measured(bits_per_s=0.0, problem="not measured"))
    told = ", ".join(
        f"{name} {item.problem or f'{item.bits_per_s / 1e9:.2f} Gb/s'}" for name, item in measured.items()
    )
    if best != standing and measured[best].bits_per_s > mine.bits_per_s * CLEARLY_FASTER:
        return best, f"{best} is faster: {told}"
    return standing, f"{standing} stays: {told}"
