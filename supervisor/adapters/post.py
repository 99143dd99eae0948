"""One HTTP request out, one bounded answer back; never raises for what a network can do, never shows a secret."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import requests

TIMEOUT_S = 5.0
_ANSWER_BYTES = 65_536
HIDDEN = "(key)"
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})

# At DEBUG urllib3 logs the request line, and keys stand in it.
logging.getLogger("urllib3").setLevel(logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """What a message says, whatever the robot: each adapter takes what its service can show."""

    text: str
    mentions: tuple[str, ...] = ()
    title: str = ""
    severity: str = "info"
    runs: tuple[str, ...] = ()
    maybe_duplicate: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back. `errcode` None: the robot gave none, then `status` is the HTTP status, 0 for no HTTP at all."""

    errcode: int | None
    status: int
    reason: str

    @property
    def delivered(self) -> bool:
        return self.errcode == 0


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `secrets` are scrubbed from every reason; `proxy` "" leaves it to the environment."""

    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""
    secrets: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """The text without the secrets, however they were quoted."""
    forms = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def send(call: Call, understand: Callable[[int, bytes], Answer]) -> Answer:
    """Post the body (without one: GET) and have the answer understood."""
    try:
        status, data = _exchange(call)
    except (requests.RequestException, OSError, ValueError) as error:
        # The exception's own text holds the URL; its type and the cause's type say enough.
        return Answer(errcode=None, status=0, reason=scrub(_innermost(error), call.secrets))
    answer = understand(status, data)
    return Answer(errcode=answer.errcode, status=status, reason=scrub(answer.reason, call.secrets))


def _exchange(call: Call) -> tuple[int, bytes]:
    with requests.Session() as session:
        # The environment's proxy never stands between us and this machine, whatever NO_PROXY says.
        session.trust_env = not call.proxy and urlsplit(call.url).hostname not in _LOCAL
        proxies = {"http": call.proxy, "https": call.proxy} if call.proxy else None
        with session.request(
            "GET" if call.body is None else "POST",
            call.url,
            params=dict(call.params),
            json=call.body,
            headers=dict(call.headers),
            timeout=call.timeout_s,
            proxies=proxies,
            allow_redirects=False,  # the key goes nowhere else
            stream=True,
        ) as response:
            return response.status_code, _read(response, time.monotonic() + call.timeout_s)


def _read(response: requests.Response, deadline: float) -> bytes:
    """The body, as far as it is sane: not for ever, not without end."""
    data = b""
    for piece in response.iter_content(chunk_size=None):
        data += piece
        if len(data) > _ANSWER_BYTES or time.monotonic() > deadline:
            break
    return data


def _innermost(error: BaseException) -> str:
    kind = type(error).__name__
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return f"{kind}: {text or type(error).__name__}"
