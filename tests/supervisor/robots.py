"""Real HTTP servers with the published limits of Feishu and DingTalk, a server that takes JSON, and a proxy.

Feishu: open.feishu.cn/document/client-docs/bot-v3/add-custom-bot. DingTalk: open.dingtalk.com/document/robots/custom-robot-access.
"""

import base64
import hashlib
import hmac
import http.client
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from supervisor.demo.robot import Answer, Asked, Robot

HOUR_S = 3600


class FeishuRobot(Robot):
    """100 a minute and 5 a second, 20 KB a body, signature over seconds; codes in `code`."""

    too_fast = 11232

    def __init__(self, *, secret: str = "", keyword: str = "") -> None:
        self.secret, self.keyword = secret, keyword
        super().__init__(key="aaaa1111-bbbb-2222-cccc-333344445555", per_minute=100)

    def mine(self, asked: Asked) -> bool:
        return asked.path.startswith("/open-apis/bot/v2/hook/")

    def verdict(self, asked: Asked) -> int:
        if asked.path != f"/open-apis/bot/v2/hook/{self.key}":
            return 19001
        found = self.understood(asked.value)
        if len(asked.data) > 20 * 1024 or found is None:
            return 9499
        if self.secret and not self._signed(asked.value):
            return 19021
        return 0 if self.keyword in found[1] else 19024

    def _signed(self, value: dict) -> bool:
        stamp = value.get("timestamp", "0")
        digest = hmac.new(f"{stamp}\n{self.secret}".encode(), b"", hashlib.sha256).digest()
        fresh = abs(time.time() - int(stamp)) <= HOUR_S
        return fresh and value.get("sign") == base64.b64encode(digest).decode()

    def too_many(self, now: float) -> bool:
        return super().too_many(now) or sum(at > now - 1 for at in self.accepted) >= 5

    def understood(self, value):
        if not isinstance(value, dict) or value.get("msg_type") != "text":
            return None
        text = value.get("content", {}).get("text", "")
        return ("text", text, tuple(re.findall('<at user_id="([^"]+)">', text))) if text else None

    def body(self, errcode: int) -> bytes:
        said = {0: "success", 19021: "sign match fail or timestamp is not within one hour from current time"}
        return json.dumps({"code": errcode, "msg": said.get(errcode, "error"), "data": {}}).encode()


class DingTalkRobot(Robot):
    """20 a minute, else nothing for ten minutes; 20,000 bytes a body; keyword and signature are 310000."""

    too_fast = 130101

    def __init__(self, *, secret: str = "", keyword: str = "") -> None:
        self.secret, self.keyword, self.blocked_until = secret, keyword, 0.0
        super().__init__(key="feedfacefeedfacefeedfacefeedface", per_minute=20)

    def mine(self, asked: Asked) -> bool:
        return urlsplit(asked.path).path == "/robot/send"

    def verdict(self, asked: Asked) -> int:
        if asked.query("access_token") != self.key:
            return 300001
        found = self.understood(asked.value)
        if found is None:
            return 400105
        if len(asked.data) > 20_000:
            return 460101
        return 0 if self._signed(asked) and self.keyword in found[1] else 310000

    def _signed(self, asked: Asked) -> bool:
        if not self.secret:
            return True
        stamp = asked.query("timestamp") or "0"
        digest = hmac.new(self.secret.encode(), f"{stamp}\n{self.secret}".encode(), hashlib.sha256).digest()
        fresh = abs(time.time() * 1000 - int(stamp)) <= HOUR_S * 1000
        return fresh and asked.query("sign") == base64.b64encode(digest).decode()

    def too_many(self, now: float) -> bool:
        if super().too_many(now):
            self.blocked_until = now + 600
        return now < self.blocked_until

    def understood(self, value):
        if not isinstance(value, dict) or value.get("msgtype") != "text":
            return None
        text, at = value.get("text", {}).get("content", ""), value.get("at", {})
        people = [name for name in (*at.get("atMobiles", ()), *at.get("atUserIds", ())) if f"@{name}" in text]
        return ("text", text, (*people, *(["@all"] if at.get("isAtAll") else []))) if text else None


class JsonServer(Robot):
    """A server of somebody else: one path that is its secret, perhaps a token, HTTP status as the answer."""

    def __init__(self, *, token: str = "") -> None:
        self.token = token
        self.values: list[dict] = []
        super().__init__(key="hooks-7f3c9a52d1", per_minute=10_000)

    @property
    def address(self) -> str:
        return f"{self.url}/in/{self.key}?source=ciuic"

    def mine(self, asked: Asked) -> bool:
        return asked.path.startswith(f"/in/{self.key}")

    def answer(self, asked: Asked) -> Answer:
        good = not self.token or asked.headers.get("Authorization") == f"Bearer {self.token}"
        answer = super().answer(asked) if good else Answer(status=401, body=b"who are you")
        if answer.errcode == 0 and answer.status == 200 and asked.value:
            self.values.append(asked.value)
        return answer

    def verdict(self, asked: Asked) -> int:
        return 0 if self.understood(asked.value) else 1

    def understood(self, value):
        return ("json", value["text"], tuple(value["mentions"])) if isinstance(value, dict) else None


class Proxy:
    """Forwards http requests and notes what it was asked for; it refuses tunnels, so that a test sees the CONNECT."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                proxy.asked.append(f"CONNECT {self.path}")
                self.send_error(502)

            def do_POST(self) -> None:
                parts = urlsplit(self.path)
                proxy.asked.append(f"POST {parts.netloc}")
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                onward = http.client.HTTPConnection(parts.netloc, timeout=10)
                onward.request("POST", f"{parts.path}?{parts.query}", body=data, headers=dict(self.headers))
                answer = onward.getresponse()
                body = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                onward.close()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        return Handler
