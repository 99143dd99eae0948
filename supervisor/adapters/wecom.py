"""The WeChat Work group robot: one message out, one answer back. The key leaves this module in no text."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import requests

from supervisor.core.text import cut

PATH = "/cgi-bin/webhook/send"
OFFICIAL = "https://qyapi.weixin.qq.com"
TEXT_BYTES = 2048
TIMEOUT_S = 5.0
_ANSWER_BYTES = 65_536
_HIDDEN = "(key)"

# At DEBUG urllib3 logs the request line, and the key stands in it.
logging.getLogger("urllib3").setLevel(logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back. `errcode` None: the robot gave none, then `status` is the HTTP status, 0 for no HTTP at all."""

    errcode: int | None
    status: int
    reason: str

    @property
    def delivered(self) -> bool:
        return self.errcode == 0


class Robot:
    """One robot's address. `repr` and every reason are free of the key."""

    def __init__(self, *, base_url: str, secret: str) -> None:
        self._key, own_base = _key_and_base(secret.strip())
        # A whole URL brings its own address, unless the configuration names a proxy of its own.
        self.base_url = (own_base if own_base and base_url == OFFICIAL else base_url).rstrip("/")

    def __repr__(self) -> str:
        return f"Robot({self.base_url}, {_HIDDEN})"

    @property
    def problem(self) -> str:
        """Why nothing can be sent with this key, "" when it can be tried."""
        return "" if self._key else "the value of the key's variable is neither a key nor a robot's URL"

    def scrub(self, text: str) -> str:
        """The text without the key, however it was quoted."""
        for form in {self._key, quote(self._key, safe="")} - {""}:
            text = text.replace(form, _HIDDEN)
        return text

    def send(self, text: str, mentioned: tuple[str, ...] = (), timeout_s: float = TIMEOUT_S) -> Answer:
        """Post one text message, cut to the published limit. Never raises for what a network can do."""
        content: dict[str, Any] = {"content": cut(text, TEXT_BYTES)}
        if mentioned:
            content["mentioned_list"] = list(mentioned)
        try:
            return self._post({"msgtype": "text", "text": content}, timeout_s)
        except (requests.RequestException, OSError, ValueError) as error:
            # The exception's own text holds the URL; its type and the cause's type say enough.
            return Answer(errcode=None, status=0, reason=self.scrub(_innermost(error)))

    def _post(self, body: Mapping[str, Any], timeout_s: float) -> Answer:
        with requests.Session() as session:
            session.trust_env = urlsplit(self.base_url).hostname not in {"127.0.0.1", "::1", "localhost"}
            with session.post(
                self.base_url + PATH,
                params={"key": self._key},
                json=body,
                timeout=timeout_s,
                allow_redirects=False,  # the key goes nowhere else
                stream=True,
            ) as response:
                data = _read(response, time.monotonic() + timeout_s)
                return self._understood(response.status_code, data)

    def _understood(self, status: int, data: bytes) -> Answer:
        if status != 200:
            return Answer(errcode=None, status=status, reason=f"HTTP status {status}")
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        errcode = value.get("errcode") if isinstance(value, dict) else None
        if type(errcode) is not int or not isinstance(value, dict):
            return Answer(
                errcode=None, status=status, reason=f"an answer of {len(data)} bytes without an errcode"
            )
        said = self.scrub(str(value.get("errmsg", "")))[:200]
        return Answer(errcode=errcode, status=status, reason=f"errcode {errcode}: {said}")


def _read(response: requests.Response, deadline: float) -> bytes:
    """The body, as far as it is sane: not for ever, not without end."""
    data = b""
    for piece in response.iter_content(chunk_size=None):
        data += piece
        if len(data) > _ANSWER_BYTES or time.monotonic() > deadline:
            break
    return data


def _key_and_base(secret: str) -> tuple[str, str]:
    """People paste either the key or the whole URL; take both."""
    if "://" not in secret:
        return ("" if any(mark in secret for mark in "/?& \n") else secret), ""
    parts = urlsplit(secret)
    return parse_qs(parts.query).get("key", [""])[0], f"{parts.scheme}://{parts.netloc}"


def _innermost(error: BaseException) -> str:
    kind = type(error).__name__
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return f"{kind}: {text or type(error).__name__}"
