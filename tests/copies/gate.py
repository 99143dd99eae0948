"""HTTP in front of the object store that strikes at one request, at a moment of the test's choice."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Moment(Enum):
    """Before the store hears of a request; when it has half of the body; when it is done and nobody knows yet."""

    UNHEARD = auto()
    HALF_SENT = auto()
    UNANSWERED = auto()


@dataclass(kw_only=True)
class Gate:
    """Passes requests on and writes them down. At request `number` (from 0) and `moment` it calls `strike` instead."""

    target: str
    number: int = -1
    moment: Moment = Moment.UNHEARD
    strike: Callable[[], object] = lambda: None
    requests: list[tuple[str, str, int]] = field(default_factory=list)  # (method, path, bytes of the body)

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        gate = self

        class Passing(_Passing):
            at = gate

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def pass_one(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes):
        """What the store answers, None when it struck."""
        with self._lock:
            mine = len(self.requests) == self.number
            self.requests.append((method, path, len(body)))
        if mine and self.moment is Moment.UNHEARD:
            return self._struck()
        store = HTTPConnection(self.target.removeprefix("http://"), timeout=30)
        with contextlib.closing(store):
            store.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                store.putheader(name, value)
            store.endheaders()
            if mine and self.moment is Moment.HALF_SENT:
                store.send(body[: len(body) // 2])
                return self._struck()
            store.send(body)
            answer = store.getresponse()
            content = answer.read()
        if mine:
            return self._struck()
        return answer.status, answer.getheaders(), content

    def _struck(self) -> None:
        self.strike()


class _Passing(BaseHTTPRequestHandler):
    at: Gate
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        told = self.at.pass_one(self.command, self.path, self.headers.items(), body)
        if told is None:
            self.close_connection = True
            return
        status, headers, content = told
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        if self.command != "HEAD" and status != 204:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        """Nothing."""
