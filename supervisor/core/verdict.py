"""A verdict: what an observation means, and the sentence that explains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.states import Cause, VerdictKind

FAILURES = frozenset(
    {
        VerdictKind.HUNG,
        VerdictKind.CRASHED,
        VerdictKind.NODE_LOST,
        VerdictKind.REFUSED,
        VerdictKind.ENDED,
        VerdictKind.SAVED,
        VerdictKind.TOO_SLOW,
        VerdictKind.DIVERGED,
    }
)
NOTICES = frozenset({VerdictKind.SLOW, VerdictKind.DIVERGING})


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`reason` is one English sentence with the numbers that it rests on; `limits` are those numbers.

    `suspects` are ranks and `nodes` node names, the most suspicious first. `signature` identifies the failure
    for "the same again"; `entry` is the catalogue's name for it, "" where no words or code tell. `step` is where it
    happened (-1: before any step). `detected_s`: seconds between what
    happened and this look, as far as the agents' clocks tell. `lines`: last words of the suspect, for people.
    """

    kind: VerdictKind
    reason: str
    cause: Cause = Cause.NONE
    suspects: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    step: int = -1
    signature: str = ""
    entry: str = ""
    detected_s: float = 0.0
    lines: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the generation is over and an answer is due. What a person ordered (a pause) is no failure."""
        return self.kind in FAILURES and self.cause is not Cause.NONE

    @property
    def told(self) -> bool:
        """Whether training goes on and people should know something about it."""
        return self.kind in NOTICES

    @property
    def trains(self) -> bool:
        """Whether the run does its work."""
        return self.kind is VerdictKind.HEALTHY or self.told
