"""The catalogue asked about a few lines in memory: the same answer as `ciuic diagnose` gives of a file that holds them.

Pure: the catalogue is data of this package, read once in a process, like code.
"""

from functools import cache, lru_cache

from supervisor.diagnose.catalogue import Entry, load
from supervisor.diagnose.gate import Gate
from supervisor.diagnose.rank import judge
from supervisor.diagnose.scan import gate_of, scan
from supervisor.diagnose.verdict import Diagnosis


@lru_cache(maxsize=20_000)
def diagnose_lines(lines: tuple[str, ...]) -> Diagnosis:
    """What these lines say. Remembered: every tick asks again for each end that it sees."""
    data = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    return judge([scan([data], "", 0, load(), the_gate())], load())


def known_entry(name: str) -> Entry | None:
    """The entry that a journal names; None where it names none, or one that the catalogue no longer has."""
    return next((entry for entry in load().entries if entry.name == name), None) if name else None


@cache
def the_gate() -> Gate:
    """The gate of this package's catalogue."""
    return gate_of(load())
