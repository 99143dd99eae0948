"""The answer: what killed the job, as a value and as the JSON that programs read. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from contract.states import Cause
from supervisor.diagnose.catalogue import Entry


class Why(StrEnum):
    """Why another finding is not the cause."""

    LATER = "later"
    VICTIM = "victim"
    OUTLIVED = "outlived"
    REMARK = "remark"
    ENDED_WELL = "ended-well"
    FOLLOWS = "follows"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A finding that is not the cause."""

    name: str
    file: str
    line: int
    why: Why


class Named(StrEnum):
    """Why the suspect is named."""

    FIRST = "first"  # it failed first
    BEHIND = "behind"  # of a collective that timed out: its number is the lowest
    SILENT = "silent"  # of a collective that timed out: the only one that did not complain


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a log."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """`suspect_line`: the suspect's own, where the decisive line is another rank's. `text` is the decisive line; `last` the last lines of the log that stopped, where nothing explains the end."""

    entry: Entry
    blame_node: str | None = None
    suspect_rank: int | None = None
    named: Named = Named.FIRST
    suspect_line: Line | None = None
    file: str | None = None
    line: int | None = None
    text: str = ""
    last: tuple[tuple[int, str], ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def cause(self) -> Cause:
        return self.entry.cause

    @property
    def failed(self) -> bool:
        return self.cause is not Cause.NONE

    def json(self) -> dict[str, Any]:
        """The contract of `ciuic diagnose --json`."""
        facts: dict[str, Any] = {
            "cause": self.entry.name,
            "class": self.cause.value,
            "retry": self.entry.retry.again,
            "blame_node": self.blame_node,
            "suspect_rank": self.suspect_rank,
            "file": self.file,
            "line": self.line,
            "text": self.text,
            "fix": {"zh": self.entry.zh, "en": self.entry.en},
        }
        if self.last:
            facts["last_lines"] = [text for _, text in self.last]
        return facts
