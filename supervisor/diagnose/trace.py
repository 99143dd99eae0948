"""Python tracebacks put together again from interleaved output: the exception, its message, where it came from. Pure."""

import re
from dataclasses import dataclass, field

from supervisor.diagnose.lines import Line

HEADER = "Traceback (most recent call last)"
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
# The last line of a traceback: a class, perhaps with its module, and perhaps a message.
_EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Empty|Full|Timeout|TimeoutExpired|Warning"
    r"|Failure|Fault|NotFound|Killed|Stop|StopIteration|Iteration|Abort|Aborted|Overflow|Mismatch)"
    r"|(?<=\.)[A-Z][a-z]+[A-Z]\w+|gaierror|herror|timeout|error|ConfigAttributeError))(?::(?: (?P<text>.*)|$)|\s*$)"
)
# Our agent's word that a process is gone: it will not write the rest of its traceback.
_ENDED = re.compile(r"rank (\d+) ended(?:: | by order)")
_FRAME = re.compile(r"\s|[│╭╰┃┏┗]|\[Previous line repeated|\^+$|~+\^*$|$")
_AGE = 400
_MESSAGE_LINES = 14
_FOREIGN = re.compile(
    r"(?i:step|epoch|iter|train)\b|srun: |slurmstepd|\[rank\d|\[?[IWEF]\d{3,4} \d\d:|\w+:\d+:\d+ \[\d+\] NCCL|={20,}|-{20,}"
)


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An exception as printed. `chained`: another one before it in the same traceback led to it."""

    text: str
    frames: str
    line_number: int
    line: Line
    chained: bool


@dataclass(kw_only=True)
class _Open:
    """A traceback being read, of one process."""

    chained: bool = False
    age: int = 0
    headers: int = 1
    frames: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    line_number: int = 0
    line: Line | None = None
    waits: bool = False  # between two exceptions of a chain

    def raised(self) -> Raised | None:
        if self.line is None:
            return None
        return Raised(
            text="\n".join(self.words),
            frames="\n".join(self.frames[-40:]),
            line_number=self.line_number,
            line=self.line,
            chained=self.chained,
        )


class Tracebacks:
    """Takes the lines that follow a traceback's header and gives back what was raised."""

    def __init__(self) -> None:
        self._open: dict[tuple[int | None, int | None, str], _Open] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def take(self, line: Line, number: int) -> tuple[list[Raised], bool]:
        """Exceptions that are complete now, and whether this line was part of a traceback (and of nothing else)."""
        if HEADER in line.message:
            return self._begin(line), True
        gone = self._gone(line)
        trace = self._open.get(line.group)
        if gone or trace is None:
            return gone, False
        trace.age += 1
        if trace.age > _AGE:
            return self._close(line), False
        if any(words in line.message for words in _CHAIN):
            return self._chain(line), True
        if trace.waits:
            if line.message.strip():
                del self._open[line.group]
            return [], not line.message.strip()
        return self._inside(trace, line, number) if trace.line is None else self._after(trace, line, number)

    def finish(self) -> list[Raised]:
        """The file has ended."""
        found = [raised for trace in self._open.values() if (raised := trace.raised()) is not None]
        self._open.clear()
        return found

    def _begin(self, line: Line) -> list[Raised]:
        before = self._open.get(line.group)
        if before is not None and before.line is None and not before.waits:
            before.headers += (
                1  # two processes write without a prefix: their exceptions come one after the other
            )
            return []
        found = before.raised() if before is not None else None
        inner = before is not None and (before.waits or "Caught " in "".join(before.words[:1]))
        self._open[line.group] = _Open(chained=inner)
        return [] if found is None or "Caught " in found.text[:300] else [found]

    def _chain(self, line: Line) -> list[Raised]:
        trace = self._open[line.group]
        found = trace.raised()
        self._open[line.group] = _Open(waits=True)
        return [] if found is None else [found]

    def _gone(self, line: Line) -> list[Raised]:
        """Where a process has ended, its traceback has too."""
        if (ended := _ENDED.match(line.message)) is None:
            return []
        traces = [self._open.pop(group) for group in list(self._open) if group[0] == int(ended[1])]
        return [raised for trace in traces if (raised := trace.raised()) is not None]

    def _close(self, line: Line) -> list[Raised]:
        trace = self._open.pop(line.group)
        found = trace.raised()
        return [] if found is None else [found]

    def _inside(self, trace: _Open, line: Line, number: int) -> tuple[list[Raised], bool]:
        message = line.message
        bare = message.strip("│┃ ")
        if (match := _EXCEPTION.match(message)) is not None or (
            trace.frames and "File " in trace.frames[0] and (match := _EXCEPTION.match(bare)) is not None
        ):
            trace.words = [match.group(0).rstrip()]
            trace.line, trace.line_number, trace.age = line, number, _AGE - 40
            return [], True
        if _FRAME.match(message):
            if len(trace.frames) < 200:
                trace.frames.append(message.strip())
            return [], True
        return [], False

    def _after(self, trace: _Open, line: Line, number: int) -> tuple[list[Raised], bool]:
        """Further lines of the message, until something else begins."""
        message = line.message
        if trace.headers > 1 and _EXCEPTION.match(message):
            found = self._close(line)
            self._open[line.group] = second = _Open(headers=trace.headers - 1)
            more, taken = self._inside(second, line, number)
            return found + more, taken
        new_record = not line.own and (line.stamp is not None or bool(line.level))
        if len(trace.words) > _MESSAGE_LINES or _FOREIGN.match(line.message) or new_record:
            return self._close(line), False
        if trace.headers > 1 and message.startswith(" "):
            return [], True
        if message.strip():
            trace.words.append(message.strip()[:400])
        return [], False
