"""The same catalogue over a few lines that are at hand: what a worker's last words mean. Pure.

`load` and `gate_of` are called once, outside the decisions; what they give is passed in.
"""

from collections.abc import Sequence

from contract.states import Cause
from supervisor.diagnose.catalogue import Catalogue
from supervisor.diagnose.gate import Gate
from supervisor.diagnose.rank import judge
from supervisor.diagnose.scan import scan


def explain_lines(lines: Sequence[str], catalogue: Catalogue, gate: Gate) -> tuple[Cause, str, str] | None:
    """Cause, the entry's name and the decisive line; None where the lines explain nothing."""
    data = "\n".join(lines).encode(errors="replace") + b"\n"
    found = judge([scan([data], "", 0, catalogue, gate)], catalogue)
    if not found.failed or found.cause is Cause.UNEXPLAINED:
        return None
    return found.cause, found.entry.name, found.text.partition("\n")[0]
