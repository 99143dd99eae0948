"""One log read to its end: which entries of the catalogue matched where, and how far the training went after it.

Reads blocks of whole lines. The gate finds the lines worth a look; only those, and the lines of an open traceback,
are decoded. Bounded in memory: what training has long outlived is forgotten.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from supervisor.diagnose.catalogue import Catalogue, Entry, Match, Tier
from supervisor.diagnose.exits import entry_of_exit, exit_code, number_of
from supervisor.diagnose.findings import Event, FileScan
from supervisor.diagnose.gate import Gate
from supervisor.diagnose.lines import LONGEST, Line, clean, parse, pieces
from supervisor.diagnose.places import Place, place_of
from supervisor.diagnose.progress import Progress
from supervisor.diagnose.trace import HEADER, Raised, Tracebacks

OUTLIVED = 3  # so many more steps after a message, and it was not the end
_MOST_OF_ONE = 60
_LAST_LINES = 12
_LONG = 8192
_MOST_DULL = 4096
_WORLD = re.compile(r"\bnranks (\d+)\b|\bworld[_ ]size[=: ]+(\d+)", re.IGNORECASE)
_INIT = re.compile(r"\brank (\d+) nranks (\d+)")
_SOFT = re.compile(
    r"\bretry(?:ing)?\b(?! count| exc)|will (?:be )?retr|\battempt \d+ ?(?:/|of) ?\d+|\bignor(?:ed|ing)\b|\bskipp(?:ed|ing)\b"
    r"|fall(?:ing|s)? ?back|\bcontinuing\b|non-fatal|\brecovered\b|\btrying again\b|重试|忽略|跳过",
    re.IGNORECASE,
)
_HARD = re.compile(
    r"giving up|max(?:imum)? retries|retr(?:y|ies) (?:limit|exceeded|count)|no more retries|放弃",
    re.IGNORECASE,
)
_WORDS_ALWAYS = ("traceback (most recent call last)", "nranks", "world_size", "world size")


def gate_of(catalogue: Catalogue) -> Gate:
    """The gate for these entries and for what the scan itself looks for."""
    return Gate((*catalogue.keys, *_WORDS_ALWAYS))


def scan(blocks: Iterable[bytes], name: str, number: int, catalogue: Catalogue, gate: Gate) -> FileScan:
    """Read one log."""
    scanner = Scanner(name, number, catalogue, gate)
    for block in blocks:
        scanner.take(block)
    return scanner.finish()


class Scanner:
    """Takes one log block by block, also while it is still being written.

    `keep_tail`: whether the last lines are wanted in the end.
    """

    def __init__(
        self, name: str, number: int, catalogue: Catalogue, gate: Gate, *, keep_tail: bool = True
    ) -> None:
        self._name, self._number = name, number
        self._catalogue, self._gate = catalogue, gate
        self._place: Place = place_of(name)
        self._line = 1
        self._traces = Tracebacks()
        self._progress = Progress()
        self._events: list[Event] = []
        self._survived: list[Event] = []
        self._counts: Counter[str] = Counter()
        self._chain: Event | None = None
        self._dull: set[bytes] = set()
        self._tail: deque[bytes] = deque(maxlen=2 if keep_tail else 0)
        self._last_stamp_line: Line | None = None
        self._nodes: set[str] = set()
        self._node_of: dict[int, str] = {}
        self._world = 0
        self._launcher = False

    def take(self, block: bytes) -> None:
        """One block of whole lines."""
        lower = b"\n" + block.lower()
        places = self._gate.places(lower)
        at = counted = steps_to = 0
        while at < len(block):
            start = at
            if not self._traces:
                hit = places.next(at)
                if hit < 0:
                    break
                start = block.rfind(b"\n", 0, max(hit - 1, 0)) + 1
            end = block.find(b"\n", start)
            end = len(block) if end < 0 else end
            self._line += block.count(b"\n", counted, start)
            counted = start
            if self._events:
                self._progress.take(lower, steps_to + 1, start + 1)
            steps_to = start
            self._whole_line(block, start, end)
            at = end + 1
        if self._events:
            self._progress.take(lower, steps_to + 1, len(lower))
            self._forget()
        self._line += block.count(b"\n", counted)
        self._tail.append(block[-16384:])

    @property
    def events(self) -> tuple[Event, ...]:
        """What was found so far and training has not outlived."""
        return tuple(self._events)

    def finish(self) -> FileScan:
        """The file has ended."""
        for raised in self._traces.finish():
            self._raised(raised)
        self._forget()
        last = _last_lines(b"".join(self._tail), self._line)
        ended = not self._tail or self._tail[-1].endswith(b"\n")
        return FileScan(
            name=self._name,
            lines=self._line - 1 if ended else self._line,
            events=tuple(self._events),
            survived=tuple(self._survived),
            step=self._progress.count,
            generation=self._progress.generation,
            last=last,
            nodes=frozenset(self._nodes),
            node_of=self._node_of,
            world=self._world,
            launcher=self._launcher,
        )

    # -- lines -------------------------------------------------------------------------------------------------

    def _whole_line(self, block: bytes, start: int, end: int) -> None:
        first: Line | None = None
        for raw in self._segments(block[start:end]):
            keys = set(self._gate.keys_in(raw.lower()))
            if not (keys or self._traces):
                continue
            shape = raw.translate(None, b"0123456789")
            if shape in self._dull and not self._traces:
                continue
            for piece in pieces(clean(raw)):
                line = parse(piece[:LONGEST])
                first = first or line
                line = replace(line, stamp=line.stamp or first.stamp, node=line.node or first.node)
                if not self._look(line, keys, block, start) and len(self._dull) < _MOST_DULL:
                    self._dull.add(shape)

    def _segments(self, raw: bytes) -> Iterator[bytes]:
        """What stands between carriage returns; of a very long line only what lies around the gate's hits."""
        if len(raw) <= _LONG:
            yield from (part for part in raw.split(b"\r") if part.strip())
            return
        if self._traces:
            yield raw[:400]
        places = self._gate.places(b"\n" + raw.lower())
        at, seen = 0, 0
        while at < len(raw) and seen < 200 and (hit := places.next(at)) >= 0:
            start = max(raw.rfind(b"\r", 0, hit) + 1, hit - 2000, 0)
            end = raw.find(b"\r", hit)
            end = min(len(raw) if end < 0 else end, hit + 4000)
            yield raw[start:end]
            at, seen = end + 1, seen + 1

    def _look(self, line: Line, keys: set[str], block: bytes, start: int) -> bool:
        """Whether this line said anything: one of its shape that did not need not be read again."""
        if self._traces or HEADER in line.message:
            found, taken = self._traces.take(line, self._line)
            for raised in found:
                self._raised(raised)
            if taken:
                return True
        if self._learn(line):
            return True
        match = self._catalogue.match(line.message, keys=keys.intersection(self._catalogue.index))
        if match is not None:
            self._matched(match, line, block, start)
        return match is not None

    def _learn(self, line: Line) -> bool:
        """Who runs where, for a blame that needs a name. Whether there is nothing more to this line."""
        if line.node and "NCCL" in line.text:
            self._nodes.add(line.node)
            if init := _INIT.search(line.message):
                self._node_of.setdefault(int(init[1]), line.node)
        if world := _WORLD.search(line.message):
            self._world = max(self._world, int(world[1] or world[2]))
        return "NCCL INFO" in line.message and "async fatal" not in line.message

    # -- events ------------------------------------------------------------------------------------------------

    def _matched(self, match: Match, line: Line, block: bytes, start: int) -> None:
        found, entry = match.found, match.entry
        if entry.tier is Tier.NOISE:
            self._launcher = self._launcher or entry.name.startswith("elastic")
            return
        event = self._event(entry, line, self._line, line.message)
        if found.get("code") or found.get("signal"):
            event = self._exit(event, found, block, start)
            if event.entry.tier is Tier.NOISE:
                return
        task, node = found.get("task"), found.get("node")
        event = replace(
            event,
            task=number_of(task),
            rank=number_of(found.get("rank")) if found.get("rank") else event.rank,
            node=node or event.node,
            work=number_of(found.get("work")),
        )
        if node and task is not None and event.task is not None:
            self._node_of.setdefault(event.task, node)
        if node:
            self._nodes.add(node)
        self._keep(event)

    def _exit(self, event: Event, found: Mapping[str, str | None], block: bytes, start: int) -> Event:
        """An exit record: its code says which entry it is; torchrun's table names rank and host lines before."""
        code = exit_code(found)
        entry = entry_of_exit(self._catalogue, event.entry, code)
        if event.entry.name.startswith("elastic"):
            self._launcher = True
            before = clean(block[max(0, start - 700) : start])
            rows = before.splitlines()[-4:]
            host = next((row.rpartition(":")[2].strip() for row in rows if re.search(r"\bhost +:", row)), "")
            ranks = re.search(r"\brank +: *(\d+) \(local_rank: *(\d+)\)", "\n".join(rows))
            root = "Root Cause" in before[-500:]
            event = replace(event, node=event.node or host, first=root)
            if ranks:
                event = replace(event, rank=int(ranks[1]), local=int(ranks[2]))
        return replace(event, entry=entry, code=code)

    def _raised(self, raised: Raised) -> None:
        """An exception: by its own words, else by its class. Of a chain the first that says something counts; why, if one says it."""
        keys = self._gate.keys_in(raised.text.lower().encode(errors="replace"))
        known = set(keys).intersection(self._catalogue.index)
        match = self._catalogue.match(raised.text, raised.frames, known)
        if match is not None and match.entry.tier is Tier.NOISE:  # noise after it does not make noise of it
            match = self._catalogue.match(raised.text.split("\n", 1)[0], raised.frames, known)
        entry = match.entry if match else self._catalogue.named("python-exception")
        event = replace(
            self._event(entry, raised.line, raised.line_number, raised.text), fallback=match is None
        )
        if match and match.found.get("rank"):
            event = replace(event, rank=number_of(match.found["rank"]))
        previous = self._chain if raised.chained else None
        if previous is not None and not (
            match is not None and (previous.fallback or entry.explains(previous.entry))
        ):
            return
        if previous in self._events:
            self._events.remove(previous)
        self._chain = event
        if entry.tier is not Tier.NOISE:
            self._keep(event)

    def _event(self, entry: Entry, line: Line, number: int, text: str) -> Event:
        quiet = line.quiet and not entry.any_level
        told = bool(_SOFT.search(text)) and not _HARD.search(text) and not entry.any_level
        return Event(
            entry=entry,
            file=self._number,
            line=number,
            text=text[:600],
            rank=line.rank if line.rank is not None else self._place.rank,
            local=line.local if line.local is not None else self._place.local,
            node=line.node or (self._place.node if line.own else ""),
            generation=line.generation,
            stamp=line.stamp,
            soft=(quiet or told) and entry.tier not in {Tier.OUTSIDE, Tier.SUCCESS},
            step=self._progress.count,
        )

    def _keep(self, event: Event) -> None:
        if self._counts[event.entry.name] >= _MOST_OF_ONE:
            self._forget()
        if self._counts[event.entry.name] < _MOST_OF_ONE or event.entry.tier is Tier.SUCCESS:
            self._counts[event.entry.name] += 1
            self._events.append(event)

    def _forget(self) -> None:
        """Events that training outlived leave; a few stay for the explanation."""
        live = [event for event in self._events if not self._outlived(event)]
        if len(live) != len(self._events):
            gone = [event for event in self._events if self._outlived(event)]
            self._survived = (
                self._survived + [event for event in gone if event.entry.tier is not Tier.SUCCESS]
            )[-20:]
            self._events = live
            self._counts = Counter(event.entry.name for event in live)

    def _outlived(self, event: Event) -> bool:
        later = self._progress.generation > event.generation > 0
        return later or self._progress.count - event.step >= OUTLIVED


def _last_lines(tail: bytes, number: int) -> tuple[tuple[int, str], ...]:
    """The last lines that say something, with their numbers."""
    rows = tail.split(b"\n")
    first = number - tail.count(b"\n")
    told = [(first + index, clean(row.split(b"\r")[-1] or row)[:300]) for index, row in enumerate(rows)]
    return tuple((index, text) for index, text in told if text.strip())[-_LAST_LINES:]
