"""Training steps as logs print them, counted: a message that training outlived was not the end of it."""

import re

from supervisor.diagnose.gate import Places

_STEP = re.compile(
    rb"(?<![a-z])(?:global[_ ]?)?(?:step|iteration|iter|itr)s?(?:[=:/ \[(]|\xef\xbc\x9a){1,12}(\d+)"
    rb"|(?<![a-z])epoch[=: \[(]{1,3}(\d+(?:\.\d+)?)"
    rb"|saved step-0*(\d+)"
    rb"|['\"]loss['\"]: ([\d.]+)"
    rb"|[| ](\d+)/\d+ \[\d\d:\d\d"
)
_LOSS_ALONE = 4
_FINITE_LOSS = re.compile(rb"loss['\"]?[=: |]{1,4}\d")
_BAD_LOSS = re.compile(rb"(?:loss|norm)['\"]?[=: |]{1,4}-?(?:nan|inf)")
_NOT_STEPS = re.compile(
    rb"load|download|tokeniz|\bmap\b|generat|filter|shard|fetch|sanity|error|fail|traceback|timed out|retry"
    rb"|watchdog|exit|abort|killed|overflow|cancel|resum|restor|start|skipping|ended|checking|\bat step"
)
# What a line with a step holds at least; a tqdm bar has its rate.
_STEMS = (b"step", b"iter", b"itr", b"epoch", b"'loss'", b'"loss"', b"it/s", b"s/it")
_GENERATION = re.compile(rb"z g(\d{4}) r\d")
_LAG = 50  # other ranks are a few steps behind; a number far below means a new epoch or a restart


class Progress:
    """Counts different steps, however many ranks print them. Reads lower-case bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.generation = 0
        self._high: dict[int, float] = {}

    def take(self, lower: bytes, start: int, end: int) -> None:
        """The steps printed between these two positions: at most one for each line."""
        places = Places(lower[start:end], None, _STEMS)
        at, text = 0, lower[start:end]
        while at < len(text) and (hit := places.next(at)) >= 0:
            begin = max(text.rfind(b"\n", 0, hit), text.rfind(b"\r", 0, hit), hit - 500) + 1
            breaks = (text.find(b"\n", hit), text.find(b"\r", hit))
            stop = min((place for place in breaks if place >= 0), default=len(text))
            self._line(text[begin : min(stop, begin + 1000)])
            at = stop + 1

    def _line(self, line: bytes) -> None:
        found = _STEP.search(line)
        if found is None or _BAD_LOSS.search(line):
            return
        if _FINITE_LOSS.search(line) or not _NOT_STEPS.search(line):
            self._one(found, _GENERATION.search(line))

    def _one(self, found: re.Match[bytes], own: re.Match[bytes] | None) -> None:
        kind = (found.lastindex or 1) - 1
        high = self._high.get(kind, -1.0)
        number = high + 1 if kind == _LOSS_ALONE - 1 else float(found[kind + 1])
        if high < number or number < high - _LAG:
            self.count += 1
            self._high[kind] = number
        if own is not None:
            self.generation = max(self.generation, int(own[1]))
