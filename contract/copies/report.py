"""copies/KIND.json: what the copier says of itself. Status and alerts rest on it; nobody else writes it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract import files
from contract.copies.store import Trouble
from contract.copies.target import Kind
from contract.layout import RunDir, checkpoint_name

_VERSION = 1
Mark = tuple[int, int, int]  # step, attempt, generation


@dataclass(frozen=True, kw_only=True)
class Report:
    """Times are UTC seconds of the copier's host, which is the supervisor's too.

    `newest`: what was copied completely last, at `copied_at`. `behind_since`: since when something newer waits, 0.0
    when nothing does; `was_behind_since`: the same of the last time that is over. `trouble`: why the newest try
    failed, None while all is well. `tries`: failed ones in a row, the last at `tried_at`. `sent` of `total` bytes.
    """

    where: str = ""
    newest: Mark | None = None
    copied_at: float = 0.0
    behind_since: float = 0.0
    was_behind_since: float = 0.0
    trouble: Trouble | None = None
    text: str = ""
    tries: int = 0
    tried_at: float = 0.0
    sending: str = ""
    sent: int = 0
    total: int = 0

    @property
    def name(self) -> str:
        """Name of the newest copy, "" before the first."""
        return checkpoint_name(*self.newest) if self.newest else ""


def report_path(run: RunDir, kind: Kind) -> Path:
    return run.copies / f"{kind}.json"


def lock_path(run: RunDir, kind: Kind) -> Path:
    return run.copies / f"{kind}.lock"


def write_report(run: RunDir, kind: Kind, report: Report) -> None:
    run.copies.mkdir(exist_ok=True)
    files.replace_json(report_path(run, kind), {"version": _VERSION, **asdict(report)})


def read_report(run: RunDir, kind: Kind) -> Report | None:
    """The report, None when there is none.

    Raises:
        ValueError: it is there and cannot be understood.
    """
    path = report_path(run, kind)
    value = files.read_json(path)
    if value is None:
        return None
    try:
        return _decoded(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error


def _decoded(value: dict[str, Any]) -> Report:
    newest = value["newest"]
    words = {item.value: item for item in Trouble}
    return Report(
        where=str(value["where"]),
        newest=None if newest is None else (int(newest[0]), int(newest[1]), int(newest[2])),
        copied_at=float(value["copied_at"]),
        behind_since=float(value["behind_since"]),
        was_behind_since=float(value["was_behind_since"]),
        trouble=words.get(value["trouble"], Trouble.UNKNOWN) if value["trouble"] else None,
        text=str(value["text"]),
        tries=int(value["tries"]),
        tried_at=float(value["tried_at"]),
        sending=str(value["sending"]),
        sent=int(value["sent"]),
        total=int(value["total"]),
    )
