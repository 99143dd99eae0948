"""What a worker's process does while its counter stands still: CPU time and bytes, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SOME_BYTES = 64 * 1024  # between two looks; less is chatter
_TELLING_S = 0.5  # a shorter time says nothing about CPU use: the kernel counts in hundredths


@dataclass(frozen=True, kw_only=True)
class Doing:
    """`os_state`: the kernel's letter. `busy`: cores in use since the counter moved; `quiet_s`: since bytes moved.

    None: it was not measured, or not for long enough.
    """

    os_state: str = ""
    busy: float | None = None
    quiet_s: float | None = None


@dataclass(kw_only=True)
class Effort:
    """One process, looked at with every beat."""

    _counter: int = -1
    _since: float = 0.0
    _cpu_s: float = 0.0
    _bytes: int | None = None
    _moved_at: float = 0.0

    def look(self, pid: int, counter: int, now: float) -> Doing:
        """What it does now. `now`: the agent's monotonic clock."""
        state, cpu_s = _stat(pid)
        if not state:
            return Doing()
        moved = _bytes_moved(pid)
        if counter != self._counter:
            self._counter, self._since, self._cpu_s, self._moved_at = counter, now, cpu_s, now
        elif moved is not None and self._bytes is not None and moved - self._bytes >= _SOME_BYTES:
            self._moved_at = now
        self._bytes = moved
        watched = now - self._since
        return Doing(
            os_state=state,
            busy=round((cpu_s - self._cpu_s) / watched, 2) if watched >= _TELLING_S else None,
            quiet_s=None if moved is None else round(now - self._moved_at, 3),
        )


def _stat(pid: int) -> tuple[str, float]:
    """The kernel's letter and CPU seconds used, ("", 0) when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", 0.0
    fields = text.rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS


def _bytes_moved(pid: int) -> int | None:
    """Bytes that went through its reads and writes, None where we may not look."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]) + int(counts["wchar"])
