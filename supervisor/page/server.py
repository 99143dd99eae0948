"""The page's HTTP server: a thread for each that looks, in which nothing is computed but who may look.

Only GET and HEAD. A path names one of a handful of things; no path leads to a file of the disk. What counts is the end of the
path, so that a proxy may put us under any prefix, and strip it or not.
"""

import gzip
import hashlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from supervisor.page.channel import Channel
from supervisor.page.door import Door, Place
from supervisor.page.painter import FLEET, Painter
from supervisor.page.words import catalogue

_MOST_VIEWERS = 256  # streams
_MOST_CONNECTIONS = 512
_BEAT_S = 2.0
_PICTURE_S = 10.0  # to the first picture
_SLOW_S = 20.0  # a browser that takes nothing for so long is let go
_SAFE = {
    # Nothing from elsewhere, and no script or style but our files: a text of a run that got into the page stays text.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
_DENIED = """<!doctype html><meta charset="utf-8"><title>ciuic</title>
<p>This page asks for a token. Open the link that ends in <code>?token=…</code>; whoever runs the supervisor has it (CIUIC_PAGE_TOKEN).</p>
<p lang="zh">此页面需要令牌。请打开以 <code>?token=…</code> 结尾的链接；令牌（CIUIC_PAGE_TOKEN）由运行看护进程的人提供。</p>
"""
_STRANGE = """<!doctype html><meta charset="utf-8"><title>ciuic</title>
<p>Without a token this page is told under the name of this machine only (localhost). Behind a proxy, set CIUIC_PAGE_TOKEN.</p>
<p lang="zh">没有令牌时只能用本机名（localhost）访问。放在代理之后时，请设置 CIUIC_PAGE_TOKEN。</p>
"""


@dataclass(frozen=True, kw_only=True)
class _File:
    kind: str
    packed: bytes
    tag: str


class Server:
    """Raises OSError when the port is taken."""

    def __init__(self, place: Place, door: Door, painter: Painter) -> None:
        self._http = _Http(place, door, painter)
        self._thread = threading.Thread(target=self._http.serve_forever, name="page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._http.ended = True
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, place: Place, door: Door, painter: Painter) -> None:
        self.address_family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        self.place, self.door, self.painter = place, door, painter
        self.files = _files()
        self.ended = False
        self.viewers = threading.BoundedSemaphore(_MOST_VIEWERS)
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((place.host, place.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more connection, or, with too many, none: threads are memory of the supervisor."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news for the supervisor's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "ciuic", ""
    timeout = _SLOW_S

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(asked.query, max_num_fields=8).items()}
        if "token" in query:
            self._let_in(query)
        elif not self.server.door.opens(self.headers.get("Cookie", ""), self.headers.get("Host", "")):
            self._say(HTTPStatus.FORBIDDEN, _DENIED if self.server.place.token else _STRANGE)
        else:
            self._answer(asked, query)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: addresses may hold the token, and the supervisor's log is about runs."""

    def _let_in(self, query: Mapping[str, str]) -> None:
        cookie = self.server.door.cookie_for(query["token"])
        if cookie is None and self.server.place.token:
            self._say(HTTPStatus.FORBIDDEN, _DENIED)
            return
        headers = {"Location": "./"} | ({"Set-Cookie": cookie} if cookie else {})
        self._send(HTTPStatus.SEE_OTHER, b"", headers)

    def _answer(self, asked: SplitResult, query: Mapping[str, str]) -> None:
        name = asked.path.rpartition("/")[2]
        if name in self.server.files:
            self._file(self.server.files[name])
        elif name == "":
            self._file(self.server.files["index.html"])
        elif name in {"picture", "events"}:
            channel = self.server.painter.channel(query.get("run", FLEET))
            if channel is None:
                self._say(HTTPStatus.NOT_FOUND, "no such run\n", "text/plain")
            elif name == "picture":
                self._picture(channel)
            else:
                self._follow(channel, query.get("since", ""))
        else:
            self._say(HTTPStatus.NOT_FOUND, "nothing here\n", "text/plain")

    def _file(self, file: _File) -> None:
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if self.headers.get("If-None-Match") == file.tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", headers)
            return
        self._send_packed(file.packed, {**headers, "Content-Type": file.kind})

    def _picture(self, channel: Channel) -> None:
        whole = channel.whole(_PICTURE_S)
        if whole is None:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "no picture yet\n", "text/plain")
            return
        self._send_packed(whole.data, {"Content-Type": _KINDS["json"], "Cache-Control": "no-store"})

    def _follow(self, channel: Channel, version: str) -> None:
        """Changes since a version, until the browser goes; now and then a sign of life with the age of the picture."""
        if not self.server.viewers.acquire(blocking=False):
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "too many look already\n", "text/plain")
            return
        try:
            with channel.viewed():
                self._begin_stream()
                if self.command != "HEAD":
                    self._stream(channel, version)
        except OSError:  # it has gone
            return
        finally:
            self.server.viewers.release()

    def _begin_stream(self) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "Connection": "close",
        }
        for key, value in (_SAFE | headers).items():
            self.send_header(key, value)
        self.end_headers()
        self.close_connection = True

    def _stream(self, channel: Channel, version: str) -> None:
        while not self.server.ended:
            found = channel.after(version, _BEAT_S)
            if found is None:
                self.wfile.write(b"event: again\ndata: {}\n\n")
                return
            version, events = found
            beat = {"of": round(channel.of, 3), "now": round(time.time(), 3)}
            self.wfile.write(b"".join(events) or b"event: beat\ndata: " + json.dumps(beat).encode() + b"\n\n")

    def _say(self, status: HTTPStatus, text: str, kind: str = _KINDS["html"]) -> None:
        self._send(status, text.encode(), {"Content-Type": kind, "Cache-Control": "no-store"})

    def _send_packed(self, packed: bytes, headers: Mapping[str, str]) -> None:
        """As it lies there; unpacked for whoever cannot."""
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            self._send(HTTPStatus.OK, packed, {**headers, "Content-Encoding": "gzip"})
        else:
            self._send(HTTPStatus.OK, gzip.decompress(packed), headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in (_SAFE | dict(headers)).items():
            self.send_header(key, value)
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _files() -> dict[str, _File]:
    """What the browser loads, by name: our own files, the report's style sheet, and the words."""
    found = {item.name: item.read_bytes() for item in files("supervisor.page").joinpath("static").iterdir()}
    found["report.css"] = files("supervisor.report").joinpath("style.css").read_bytes()
    found["words.json"] = json.dumps(catalogue(), ensure_ascii=False).encode()
    return {
        name: _File(
            kind=_KINDS[name.rpartition(".")[2]],
            packed=gzip.compress(data, mtime=0),
            tag=f'"{hashlib.sha256(data).hexdigest()[:20]}"',
        )
        for name, data in found.items()
    }
