"""The robots of WeChat Work, Feishu and DingTalk, and a server that takes JSON. The key leaves here in no text."""

import base64
import hashlib
import hmac
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from contract.config.alerts import DingTalk, Feishu, Receiver, Webhook, WeCom
from supervisor.adapters.post import HIDDEN, TIMEOUT_S, Answer, Call, Letter, scrub, send
from supervisor.core.services import SERVICES
from supervisor.core.text import cut

_UNUSABLE = "the value of {name} is neither a key nor a robot's URL"


class Robot(ABC):
    """One robot's address, its key read from the environment. `repr` and every reason are free of the key."""

    def __init__(self, receiver: Receiver, environment: Mapping[str, str]) -> None:
        self.receiver = receiver
        self._value = environment.get(receiver.key_env, "").strip()
        self._secret = environment.get(receiver.secret_env, "").strip() if receiver.secret_env else ""
        self.secrets = tuple(item for item in (self._value, self._key, self._secret) if item)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.receiver.name}, {HIDDEN})"

    @property
    @abstractmethod
    def _key(self) -> str:
        """The key itself, "" when the variable holds none."""

    @abstractmethod
    def send(self, letter: Letter, timeout_s: float = TIMEOUT_S) -> Answer:
        """One message, cut to the published limit. Never raises for what a network can do."""

    @property
    def problem(self) -> str:
        """Why nothing can be sent, "" when it can be tried."""
        if not self._value:
            return f"set {self.receiver.key_env}"
        if self.receiver.secret_env and not self._secret:
            return f"set {self.receiver.secret_env}"
        return "" if self._key else _UNUSABLE.format(name=self.receiver.key_env)

    def _base(self) -> str:
        """A whole URL brings its own address, unless the configuration names another one."""
        own = self._value.split("?")[0] if "://" in self._value else ""
        parts = urlsplit(own)
        default = type(self.receiver).model_fields["base_url"].default
        keep = not own or self.receiver.base_url != default
        return (self.receiver.base_url if keep else f"{parts.scheme}://{parts.netloc}").rstrip("/")

    def _call(self, url: str, body: Mapping[str, Any], timeout_s: float, **more: Any) -> Call:
        return Call(
            url=url,
            body=body,
            proxy=self.receiver.proxy,
            secrets=self.secrets,
            timeout_s=timeout_s,
            **more,
        )

    def _cut(self, text: str) -> str:
        return cut(text, SERVICES[self.receiver.service].text_bytes)


class WeComRobot(Robot):
    @property
    def _key(self) -> str:
        return _from_query(self._value, "key")

    def send(self, letter: Letter, timeout_s: float = TIMEOUT_S) -> Answer:
        content: dict[str, Any] = {"content": self._cut(letter.text)}
        if letter.mentions:
            content["mentioned_list"] = list(letter.mentions)
        url = f"{self._base()}/cgi-bin/webhook/send"
        body = {"msgtype": "text", "text": content}
        return send(
            self._call(url, body, timeout_s, params={"key": self._key}), _errcode("errcode", "errmsg")
        )


class FeishuRobot(Robot):
    r"""Signature: the key of the HMAC is "timestamp\nsecret", and the message is empty (seconds)."""

    @property
    def _key(self) -> str:
        if "://" not in self._value:
            return _plain(self._value)
        return urlsplit(self._value).path.rpartition("/hook/")[2].strip("/")

    def send(self, letter: Letter, timeout_s: float = TIMEOUT_S) -> Answer:
        names = {"@all": "all"}
        marks = "".join(f'<at user_id="{names.get(name, name)}"></at>' for name in letter.mentions)
        body: dict[str, Any] = {"msg_type": "text", "content": {"text": self._cut(letter.text) + marks}}
        if self._secret:
            stamp = str(int(time.time()))
            digest = hmac.new(f"{stamp}\n{self._secret}".encode(), b"", hashlib.sha256).digest()
            body |= {"timestamp": stamp, "sign": base64.b64encode(digest).decode()}
        url = f"{self._base()}/open-apis/bot/v2/hook/{self._key}"
        return send(self._call(url, body, timeout_s), _errcode("code", "msg"))


class DingTalkRobot(Robot):
    r"""Signature: the key of the HMAC is the secret, the message "timestamp\nsecret" (milliseconds)."""

    @property
    def _key(self) -> str:
        return _from_query(self._value, "access_token")

    def send(self, letter: Letter, timeout_s: float = TIMEOUT_S) -> Answer:
        people = [name for name in letter.mentions if name != "@all"]
        # A person is only mentioned whose mark stands in the text.
        marks = "".join(f" @{name}" for name in people)
        body = {
            "msgtype": "text",
            "text": {"content": self._cut(letter.text) + marks},
            "at": {
                "atUserIds": [name for name in people if not name.isdigit()],
                "atMobiles": [name for name in people if name.isdigit()],
                "isAtAll": "@all" in letter.mentions,
            },
        }
        params = {"access_token": self._key}
        if self._secret:
            stamp = str(int(time.time() * 1000))
            digest = hmac.new(self._secret.encode(), f"{stamp}\n{self._secret}".encode(), hashlib.sha256)
            params |= {"timestamp": stamp, "sign": base64.b64encode(digest.digest()).decode()}
        url = f"{self._base()}/robot/send"
        return send(self._call(url, body, timeout_s, params=params), _errcode("errcode", "errmsg"))


class WebhookRobot(Robot):
    """The whole URL is the key. A secret goes out as a bearer token. HTTP 2xx is "taken"."""

    @property
    def _key(self) -> str:
        return self._value if self._value.startswith(("http://", "https://")) else ""

    def send(self, letter: Letter, timeout_s: float = TIMEOUT_S) -> Answer:
        body = {
            "version": 1,
            "source": "ciuic",
            "severity": letter.severity,
            "title": letter.title,
            "text": self._cut(letter.text),
            "runs": list(letter.runs),
            "mentions": list(letter.mentions),
            "maybe_duplicate": letter.maybe_duplicate,
        }
        headers = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        return send(self._call(self._key, body, timeout_s, headers=headers), _by_status)


def robot_for(receiver: Receiver, environment: Mapping[str, str]) -> Robot:
    """The receiver's robot with its key from the environment, which is read now and kept by the robot only."""
    match receiver:
        case WeCom():
            return WeComRobot(receiver, environment)
        case Feishu():
            return FeishuRobot(receiver, environment)
        case DingTalk():
            return DingTalkRobot(receiver, environment)
        case Webhook():
            return WebhookRobot(receiver, environment)
        case _:
            raise AssertionError(receiver.service)


def scrub_keys(text: str, receivers: Mapping[str, Receiver], environment: Mapping[str, str]) -> str:
    """The text without the keys and secrets of these receivers, whole or as parts of their URLs."""
    found: list[str] = []
    for receiver in receivers.values():
        found += robot_for(receiver, environment).secrets
    return scrub(text, tuple(found))


def _plain(value: str) -> str:
    return "" if any(mark in value for mark in "/?& \n") else value


def _from_query(value: str, name: str) -> str:
    """People paste either the key or the whole URL; take both."""
    return parse_qs(urlsplit(value).query).get(name, [""])[0] if "://" in value else _plain(value)


def _errcode(code: str, message: str) -> Callable[[int, bytes], Answer]:
    """Understands {code: 0, message: "ok"} in HTTP 200; anything else is not the robot's word."""

    def understand(status: int, data: bytes) -> Answer:
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        found = value.get(code) if isinstance(value, dict) else None
        spoken = type(found) is int and isinstance(value, dict) and (status == 200 or found != 0)
        if status != 200 and not spoken:
            return Answer(errcode=None, status=status, reason=f"HTTP status {status}")
        if not spoken:
            return Answer(
                errcode=None, status=status, reason=f"an answer of {len(data)} bytes without {_a(code)}"
            )
        said = str(value.get(message, ""))[:200]
        return Answer(errcode=found, status=status, reason=f"{code} {found}: {said}")

    return understand


def _a(code: str) -> str:
    return "an errcode" if code == "errcode" else f"a {code}"


def _by_status(status: int, data: bytes) -> Answer:
    del data  # a server of somebody else may echo what it likes
    good = 200 <= status < 300
    return Answer(
        errcode=0 if good else 429 if status == 429 else None, status=status, reason=f"HTTP status {status}"
    )
