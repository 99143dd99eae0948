"""Carries one message at a time in a thread of its own, so that a slow robot never delays a tick."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.adapters.post import Answer


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A message on its way. `parts`: (run, receiver) → alerts that it carries; their journals get the outcome."""

    parts: dict[tuple[str, str], tuple[str, ...]]
    send: Callable[[], Answer]


@dataclass(frozen=True, kw_only=True)
class Receipt:
    parts: dict[tuple[str, str], tuple[str, ...]]
    answer: Answer


class Courier:
    """One message in flight; the outcome waits until it is collected."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._parcel: Parcel | None = None
        self._answer: Answer | None = None

    @property
    def busy(self) -> bool:
        """Whether a message is on its way, or its outcome not collected yet."""
        return self._parcel is not None

    def take(self, parcel: Parcel) -> None:
        """Start to deliver. The caller has journalled the try, and `busy` was false."""
        assert self._parcel is None
        self._parcel, self._answer = parcel, None
        self._thread = threading.Thread(target=self._carry, args=(parcel,), name="courier", daemon=True)
        self._thread.start()

    def collect(self) -> Receipt | None:
        """The outcome of the message in flight, once, when there is one."""
        if self._parcel is None or self._answer is None:
            return None
        receipt = Receipt(parts=self._parcel.parts, answer=self._answer)
        self._parcel = self._answer = self._thread = None
        return receipt

    def wait(self, timeout_s: float) -> None:
        """Let the message in flight arrive (before the end of the process)."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _carry(self, parcel: Parcel) -> None:
        try:
            self._answer = parcel.send()
        except Exception as error:  # a thread that dies silently would keep the courier busy for ever
            self._answer = Answer(errcode=None, status=0, reason=type(error).__name__)
