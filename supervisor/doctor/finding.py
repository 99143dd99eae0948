"""What doctor says: one finding, and what follows from all of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich.cells import cell_len, set_cell_size

from contract.states import ExitCode
from supervisor.doctor.chinese import FINDINGS


class State(StrEnum):
    """FAIL: runs will not work or will be lost. WARN: they work, worse than they could. SKIPPED: not looked at."""

    FAIL = "fail"
    WARN = "warn"
    OK = "ok"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`id` never changes its meaning; `why` and `fix` are empty where nothing is wrong."""

    id: str
    state: State
    what: str
    why: str = ""
    fix: str = ""


def ok(id_: str, what: str) -> Finding:
    return Finding(id=id_, state=State.OK, what=what)


def skipped(id_: str, what: str) -> Finding:
    return Finding(id=id_, state=State.SKIPPED, what=what)


def exit_code(findings: Iterable[Finding], *, strict: bool) -> int:
    """0 or 1; `strict`: a warning counts too."""
    bad = {State.FAIL, State.WARN} if strict else {State.FAIL}
    return ExitCode.FAILED if any(finding.state in bad for finding in findings) else ExitCode.FINISHED


def report(findings: Iterable[Finding], to: str = "en") -> list[str]:
    """Lines for people in the language `to`, what is wrong at the end, where it is still on the screen."""
    order = [State.SKIPPED, State.OK, State.WARN, State.FAIL]
    known = sorted(findings, key=lambda finding: (order.index(finding.state), finding.id))
    width = max((len(finding.id) for finding in known), default=0)
    labels = {state: FINDINGS.told(state.upper(), to) for state in order}
    room = max(map(cell_len, labels.values()))
    lines = []
    for finding in known:
        label = set_cell_size(labels[finding.state], room)
        lines.append(f"{label} {finding.id:{width}}  {FINDINGS.told(finding.what, to)}")
        lines += [f"{'':{room + 1}}{'':{width}}  {text}" for text in _more(finding, to)]
    counts = ", ".join(f"{sum(f.state is state for f in known)} {state}" for state in reversed(order))
    return [*lines, FINDINGS.told(counts, to)]


def _more(finding: Finding, to: str) -> Iterator[str]:
    colon = "：" if to == "zh" else ": "
    for label, text in (("why", finding.why), ("do", finding.fix)):
        if text:
            yield f"{FINDINGS.told(label, to)}{colon}{FINDINGS.told(text, to)}"
