"""A stand-in for the WeChat Work group robot: a real HTTP server on 127.0.0.1 that enforces the published limits.

    with Robot() as robot:            # robot.url goes into [alerts.wecom] base_url, robot.key into CIUIC_WECOM_KEY
        …
        robot.messages                # what arrived

`robot.script(Answer(errcode=45009), Answer(status=500), Answer(hang_s=9), Answer(body=b"?"))` makes the next
requests fail in this order. `python -m supervisor.demo.robot` runs it alone and prints each message as a line.
"""

import argparse
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PATH = "/cgi-bin/webhook/send"
PER_MINUTE = 20
# Bytes of UTF-8 that the content of a message may have, by message type.
CONTENT_BYTES: Mapping[str, int] = MappingProxyType({"text": 2048, "markdown": 4096, "markdown_v2": 4096})
_ERRMSG: Mapping[int, str] = MappingProxyType(
    {
        -1: "system error",
        0: "ok",
        40008: "invalid message type",
        40058: "content exceed max length",
        44004: "empty content",
        45009: "api freq out of limit",
        93000: "invalid webhook url",
    }
)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message that was accepted. `at`: the robot's monotonic clock."""

    at: float
    msgtype: str
    content: str
    mentioned: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A scripted answer: the first of body, status and hang that is set decides, else `errcode` in HTTP 200.

    `accept`: the message counts as arrived although the answer says something else (or never comes).
    """

    errcode: int = 0
    status: int = 200
    body: bytes | None = None
    hang_s: float = 0.0
    accept: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    data: bytes

    @property
    def value(self) -> Any:
        """The JSON in it, None when there is none."""
        try:
            return json.loads(self.data)
        except ValueError:
            return None

    def query(self, name: str) -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]


def verdict(value: object, known_key: bool) -> int:
    """The errcode that the real robot gives for this body (rate limit apart)."""
    if not known_key:
        return 93000
    if not isinstance(value, dict) or value.get("msgtype") not in CONTENT_BYTES:
        return 40008
    inner = value.get(value["msgtype"])
    content = inner.get("content") if isinstance(inner, dict) else None
    if not isinstance(content, str):
        return 40058
    if not content.strip():
        return 44004
    return 40058 if len(content.encode()) > CONTENT_BYTES[value["msgtype"]] else 0


class Robot:
    """The server. Use it as a context manager; it answers in threads of its own."""

    def __init__(
        self, *, key: str = "693a91f6-7xxx-4bc4-97a0-0ec2sifa5aaa", per_minute: int = PER_MINUTE
    ) -> None:
        self.key = key
        self.messages: list[Message] = []
        self.requests = 0
        self._per_minute = per_minute
        self._script: deque[Answer] = deque()
        self.accepted: deque[float] = deque()
        self.clock: Callable[[], float] = time.monotonic  # tests move it
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL, as `[alerts.wecom] base_url` takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *answers: Answer) -> None:
        """The next requests are answered like this, whatever they say."""
        with self._lock:
            self._script.extend(answers)

    def texts(self) -> list[str]:
        """The contents of all messages that arrived."""
        with self._lock:
            return [message.content for message in self.messages]

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, asked: Asked) -> Answer:
        """What one request gets; an accepted message is recorded."""
        if not self.mine(asked):
            return Answer(status=404, body=b"not found")
        with self._lock:
            self.requests += 1
            scripted = self._script.popleft() if self._script else None
            if scripted is not None:
                if scripted.accept and self.understood(asked.value) is not None:
                    self._record(asked.value)
                return scripted
            code = self.verdict(asked)
            if code == 0 and self.too_many(self.clock()):
                code = self.too_fast
            if code == 0:
                self._record(asked.value)
            return Answer(errcode=code)

    def _record(self, value: Any) -> None:
        now = self.clock()
        self.accepted.append(now)
        found = self.understood(value)
        assert found is not None
        msgtype, content, mentioned = found
        self.messages.append(Message(at=now, msgtype=msgtype, content=content, mentioned=mentioned))

    # --- what differs from service to service

    too_fast = 45009

    def mine(self, asked: Asked) -> bool:
        """Whether this is the address of messages."""
        return urlsplit(asked.path).path == PATH

    def verdict(self, asked: Asked) -> int:
        """The code for this request, the rate apart."""
        return verdict(asked.value, asked.query("key") == self.key)

    def too_many(self, now: float) -> bool:
        while self.accepted and self.accepted[0] <= now - 60:
            self.accepted.popleft()
        return len(self.accepted) >= self._per_minute

    def understood(self, value: Any) -> tuple[str, str, tuple[str, ...]] | None:
        """Type, text and mentions of a message, None when it is none."""
        if verdict(value, known_key=True) != 0:
            return None
        inner = value[value["msgtype"]]
        mentioned = tuple(str(name) for name in inner.get("mentioned_list") or ())
        return value["msgtype"], inner["content"], mentioned

    def body(self, errcode: int) -> bytes:
        message = _ERRMSG.get(errcode, "error")
        return json.dumps({"errcode": errcode, "errmsg": message}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        robot = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = robot.answer(Asked(path=self.path, headers=dict(self.headers), data=data))
                if answer.hang_s:
                    robot._closing.wait(answer.hang_s)
                    self.close_connection = True
                    return
                body = answer.body if answer.body is not None else robot.body(answer.errcode)
                self._reply(answer.status, body)

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Nothing: the request line holds the key."""

        return Handler


def main() -> None:
    """Serve until interrupted; the first line of stdout is the address, then one line of JSON a message."""
    argparse.ArgumentParser(prog="python -P -m supervisor.demo.robot", description=main.__doc__).parse_args()
    with Robot() as robot:
        sys.stdout.write(json.dumps({"url": robot.url, "key": robot.key}) + "\n")
        sys.stdout.flush()
        shown = 0
        try:
            while True:
                time.sleep(0.1)
                for text in robot.texts()[shown:]:
                    sys.stdout.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                    shown += 1
                sys.stdout.flush()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
