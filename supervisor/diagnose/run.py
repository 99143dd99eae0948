"""From log files to a diagnosis: the part that reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from supervisor.diagnose.catalogue import load
from supervisor.diagnose.findings import FileScan
from supervisor.diagnose.rank import judge
from supervisor.diagnose.read import EMPTY, NO_TEXT, Problem, blocks, sources
from supervisor.diagnose.scan import gate_of, scan
from supervisor.diagnose.verdict import Diagnosis


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`diagnosis` is None when nothing could be read; `problems` say why."""

    diagnosis: Diagnosis | None
    problems: tuple[Problem, ...]
    files: int


def diagnose(paths: Sequence[str], stdin: IO[bytes] | None = None) -> Outcome:
    """Read every log and judge them together."""
    catalogue = load()
    gate = gate_of(catalogue)
    scans: list[FileScan] = []
    problems: list[Problem] = []
    for source in sources(list(paths), stdin):
        if isinstance(source, Problem):
            problems.append(source)
            continue
        try:
            scans.append(scan(blocks(source.stream), source.name, len(scans), catalogue, gate))
        except (OSError, EOFError, ValueError) as error:
            problems.append(Problem(name=source.name, why=f"{type(error).__name__}: {error}"))
    if not any(found.lines for found in scans):
        empty = tuple(Problem(name=found.name, why=EMPTY) for found in scans)
        return Outcome(diagnosis=None, problems=(*problems, *empty), files=0)
    # Beside logs a directory holds all sorts of things: only what was named is missed.
    told = tuple(item for item in problems if item.why != NO_TEXT or item.name in paths)
    return Outcome(diagnosis=judge(scans, catalogue), problems=told, files=len(scans))
