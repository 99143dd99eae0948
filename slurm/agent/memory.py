"""Whether the kernel has killed for want of memory: its counter, which rises before the victim is dead."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_RECENT_S = 3.0  # a death is heard of sooner than this


@dataclass(kw_only=True)
class MemoryWatch:
    """The counter of this node, marked with every beat."""

    source: Path = _VMSTAT
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))

    def mark(self, now: float) -> None:
        """Remember how many kills there have been until now."""
        while len(self._marks) > 1 and now - self._marks[1][0] > _RECENT_S:
            self._marks.popleft()
        self._marks.append((now, self._kills()))

    def killed(self) -> int:
        """How many processes of this node the kernel has killed in the last moments."""
        return self._kills() - self._marks[0][1] if self._marks else 0

    def _kills(self) -> int:
        try:
            text = self.source.read_text(encoding="ascii")
        except OSError:
            return 0
        found = (line.split()[1] for line in text.splitlines() if line.startswith("oom_kill "))
        return int(next(found, "0"))
