"""What each service publishes of its robots: sizes, rates, and what its answers mean. Data only.

WeChat Work: developer.work.weixin.qq.com/document/path/99110 (text 2,048 bytes, 20 a minute) and 90455 (codes).
Feishu: open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (body 20 KB, 100 a minute and 5 a second, signature;
codes 9499, 11232, 19001, 19021, 19022, 19024).
DingTalk: open.dingtalk.com/document/robots/custom-robot-access (20 a minute, else nothing for ten minutes; signature
valid for an hour; code 310000 for keyword, signature and address) and .../orgapp/server-api-error-codes-1; the 20,000
bytes of a body stand in the text of its own error 460101.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Fate(StrEnum):
    """What becomes of a message after an answer."""

    SENT = "sent"
    RETRY = "retry"
    DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class Service:
    """`text_bytes`: the most that we send in one message; `gap_s`: least time between two.

    `busy`: codes after which the same message may pass later; `limited`: those that say "too fast", after which
    everything waits `pause_s`; `hopeless`: the same message again would be the same answer.
    `http_says_it`: the HTTP status is the service's own answer and not that of something on the way.
    """

    text_bytes: int
    limited: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset({-1})
    hopeless: frozenset[int] = frozenset()
    pause_s: float = 60.0
    gap_s: float = 0.0
    http_says_it: bool = False


# Feishu and DingTalk take more than 4,000 bytes; nobody reads that at night.
SERVICES: Mapping[str, Service] = MappingProxyType(
    {
        "wecom": Service(
            text_bytes=2048,
            limited=frozenset({45009}),
            # wrong key, wrong type, too long, empty
            hopeless=frozenset({93000, 40008, 40058, 44004}),
        ),
        "feishu": Service(
            text_bytes=4000,
            limited=frozenset({11232, 99991400}),
            # bad request or too long, no such robot, signature or clock, address not allowed, keyword missing
            hopeless=frozenset({9499, 19001, 19021, 19022, 19024, 19036}),
            gap_s=0.25,
        ),
        "dingtalk": Service(
            text_bytes=4000,
            limited=frozenset({130101, 410100}),
            # keyword, signature or address; no such token; stopped; group gone; type; too long
            hopeless=frozenset(
                {310000, 300001, 40035, 400013, 400101, 400102, 400105, 400106, 460101, 101002}
            ),
            pause_s=600.0,
        ),
        "webhook": Service(text_bytes=16_000, limited=frozenset({429}), http_says_it=True),
    }
)
_STRANGE_TRIES = 5
_MAY_PASS = frozenset({0, 408, 425, 429})


def classify(errcode: int | None, status: int, *, tries: int = 1, service: str = "wecom") -> Fate:
    """What the answer to try number `tries` means.

    `errcode` None: there was none; `status` is then the HTTP status, 0 for no HTTP at all (time-out, refused).
    The robots themselves answer with HTTP 200, so that any other status comes from something on the way: again
    later. An errcode that is not known is tried a few times.
    """
    kind = SERVICES[service]
    strange = Fate.RETRY if tries < _STRANGE_TRIES else Fate.DROP
    if errcode is None:
        theirs = kind.http_says_it and 300 <= status < 500 and status not in _MAY_PASS
        return strange if theirs else Fate.RETRY
    if errcode == 0:
        return Fate.SENT if 200 <= status < 300 else Fate.RETRY
    if errcode in kind.busy | kind.limited:
        return Fate.RETRY
    return Fate.DROP if errcode in kind.hopeless else strange
