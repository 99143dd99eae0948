"""One picture that many follow: packed once for all who come, and its changes kept for a while for all who stay."""

import gzip
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor.page.changes import changes

_KEPT = 64  # changes; who is further behind takes the whole picture again


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A picture as it is sent, gzipped JSON."""

    version: str
    data: bytes


class Channel:
    """`show` is called by the painter alone, everything else by any thread."""

    def __init__(self, boot: str) -> None:
        self._boot = boot  # versions of another process are never ours
        self._news = threading.Condition()
        self._picture: Mapping[str, Any] = {}
        self._version = 0  # 0: nothing is painted yet
        self._of = 0.0
        self._at = 0.0
        self._changes: deque[bytes] = deque(maxlen=_KEPT)
        self._whole: Whole | None = None
        self._closed = False
        self._viewers = 0
        self.wanted_at = 0.0  # when somebody last asked (monotonic)

    @property
    def of(self) -> float:
        """When (UTC seconds) that was seen which the picture shows, also where nothing of it has changed."""
        return self._of

    @property
    def viewers(self) -> int:
        return self._viewers

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """Somebody looks for so long."""
        with self._news:
            self._viewers += 1
        try:
            yield
        finally:
            with self._news:
                self._viewers -= 1

    def show(self, picture: Mapping[str, Any], of: float, now: float) -> None:
        """A newer picture, as seen at `of`. Whoever waits is told what has changed, if anything has."""
        patch = changes(self._picture, picture)
        with self._news:
            self._of, self._at = of, now
            if not patch and self._version:
                return
            self._picture = picture
            self._version += 1
            event = {"version": self._name(), "of": round(of, 3), "now": round(now, 3), "patch": patch}
            self._changes.append(b"event: change\ndata: " + dumped(event) + b"\n\n")
            self._news.notify_all()

    def whole(self, patience_s: float) -> Whole | None:
        """The picture; None if none was painted in time. Packed at most once a version, whoever asks first."""
        with self._news:
            self._news.wait_for(lambda: self._version or self._closed, patience_s)
            if not self._version:
                return None
            name = self._name()
            if self._whole is None or self._whole.version != name:
                value = {
                    "version": name,
                    "of": round(self._of, 3),
                    "now": round(self._at, 3),
                    "picture": self._picture,
                }
                self._whole = Whole(version=name, data=gzip.compress(dumped(value), 5, mtime=0))
            return self._whole

    def after(self, version: str, patience_s: float) -> tuple[str, Sequence[bytes]] | None:
        """(newest version, the events since `version`), () when nothing came in time; None: take the whole again."""
        with self._news:
            number = self._number(version)
            if number is None:
                return None
            self._news.wait_for(lambda: self._version > number or self._closed, patience_s)
            missed = self._version - number
            if self._closed or missed < 0 or missed > len(self._changes):
                return None
            return self._name(), tuple(self._changes)[len(self._changes) - missed :]

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _name(self) -> str:
        return f"{self._boot}-{self._version}"

    def _number(self, version: str) -> int | None:
        boot, _, number = version.rpartition("-")
        return int(number) if boot == self._boot and number.isdecimal() and len(number) < 12 else None


def dumped(value: Any) -> bytes:
    """One line of JSON. A number that is none is an error here: the painter makes it null."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
