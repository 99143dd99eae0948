"""What one line of a log says beside its message: when, which rank, which node, how serious. Pure.

Launchers put their own prefix before every line; signatures are anchored on messages, so prefixes come off here.
"""

import re
from dataclasses import dataclass, replace

from supervisor.diagnose.stamps import Stamp, find_stamp

LONGEST = 6000
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OWN = re.compile(
    r"(?:(?P<node>[\w.-]+): )?(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z) g(?P<gen>\d{4}) r(?P<rank>\d+|-) \| ?"
)
_NCCL = re.compile(r"(?:\[[^\]]{8,32}\] )?(?P<node>[\w.-]+):\d+:\d+ \[(?P<dev>-?\d+)\] ")
_SYSLOG = re.compile(
    r"(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?) (?P<node>[\w.-]+) "
    r"(?P<who>kernel|nvidia-\w+|systemd|slurm\w*|dcgm|nvsm)(?:\[\d+\])?: "
)
# One after another, as often as they come: srun -l, torchrun, mpirun, pdsh, plain rank words.
_TAGS = (
    re.compile(r" {0,5}(?P<rank>\d{1,5}): (?=\S| )"),
    re.compile(r"\[rank ?:? ?(?P<rank>\d+)\]:? ?", re.IGNORECASE),
    re.compile(r"\[(?:default|trainer|worker|proc|local_rank ?)(?P<local>\d+)\]:? ?"),
    re.compile(r"\[\d+,(?P<rank>\d+)\](?:<\w+>)?: ?"),
    re.compile(r"\(?rank[ =:_-]{1,2}(?P<rank>\d+)\)?(?: ?[|:>\]-]) ", re.IGNORECASE),
    re.compile(r"\[(?P<rank>\d{1,5})\]: ?"),
    re.compile(r"(?P<node>\d{1,3}(?:\.\d{1,3}){3}): (?=\S| )"),  # pdsh by address
    re.compile(r"\[\d{1,9}\] (?=\[|\w)"),  # a pager's or collector's line number
    re.compile(r"\((?P<node>[\w.-]*\d[\w.-]*)\) (?=\[|\w)"),
    re.compile(r"(?P<node>(?!step|epoch|iter|rank|loss|srun|file)[a-z][a-z0-9-]*\d[\w.-]*): (?=\S| )"),
)
_RANK = re.compile(
    r"\[rank ?:? ?(\d+)\]|\brank[ =:]{1,2}(\d+)(?:\]|\b(?! (?:of|nranks)))|\bglobal_rank[=: ]{1,2}(\d+)",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"\bGPU (\d{1,2}) has a total capac", re.IGNORECASE)
_LEVEL = re.compile(
    r"(?:^|[\s\[\]|:\-(*])(?P<word>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\s\]|:\-)*]|$)"
    r"|(?:^|\[)(?P<letter>[IWEF])\d{3,4} \d\d:\d\d:\d\d"
    r"|\[(?P<old>[IWE]) [\w/.]+\.(?:cpp|h|cc):\d+\]"
    r"|\b(?P<kind>\w*Warning): "
)
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "ERROR"}
_SPLIT = re.compile(r"(?=\[rank\d+\]:)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One piece of output. `local` is a rank within a node; `level` is "" where nothing says it."""

    text: str
    message: str
    rank: int | None = None
    local: int | None = None
    node: str = ""
    generation: int = 0
    stamp: Stamp | None = None
    level: str = ""
    own: bool = False

    @property
    def group(self) -> tuple[int | None, int | None, str]:
        """Lines of one process: what a traceback's lines have in common."""
        return (self.rank, self.local, self.node)

    @property
    def quiet(self) -> bool:
        """A remark, by its own level: worth something only in a job that failed."""
        return self.level in {"DEBUG", "INFO", "WARNING"}


def clean(raw: bytes) -> str:
    """Text without colours, holes and control characters."""
    text = raw.replace(b"\0", b"").decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.rstrip()


def pieces(text: str) -> list[str]:
    """A line on which several ranks wrote at once, taken apart."""
    return [piece for piece in _SPLIT.split(text) if piece.strip()] if text.count("[rank") > 1 else [text]


def parse(text: str) -> Line:
    """Take the prefixes off."""
    if own := _OWN.match(text):
        rank = None if own["rank"] == "-" else int(own["rank"])
        message = text[own.end() :]
        # A program under our agent writes its own prefix after ours; rank and clock are ours.
        inner = parse(message) if message[:1] not in {"", " "} else Line(text=message, message=message)
        return replace(
            inner,
            text=text,
            rank=rank,  # what the agent says about a rank is no line of that rank
            local=None,
            node=own["node"] or inner.node,
            generation=int(own["gen"]),
            stamp=find_stamp(own["time"]),
            own=True,
        )
    return _parse_foreign(text)


def _parse_foreign(text: str) -> Line:
    rest, rank, local, node = text, None, None, ""
    for _ in range(5):
        found = next((match for tag in _TAGS if (match := tag.match(rest))), None)
        if found is None:
            break
        groups = found.groupdict()
        rank = int(groups["rank"]) if groups.get("rank") else rank
        local = int(groups["local"]) if groups.get("local") else local
        node = groups.get("node") or node
        rest = rest[found.end() :]
    if known := _SYSLOG.match(rest) or _NCCL.match(rest):
        node = known["node"]
        local = (int(known.groupdict().get("dev") or 0) or None) if local is None else local
    head = rest[:160]
    if rank is None and (said := _RANK.search(rest[:400])):
        rank = int(next(number for number in said.groups() if number))
    if local is None and (device := _DEVICE.search(rest[:600])):
        local = int(device[1]) or None  # every process that sees only its own GPU calls it 0
    return Line(
        text=text, message=rest, rank=rank, local=local, node=node, stamp=find_stamp(head), level=_level(head)
    )


def _level(head: str) -> str:
    found = _LEVEL.search(head)
    if found is None or "NCCL WARN" in head:
        return ""
    if found["kind"]:
        return "WARNING"
    word = found["word"] or _LETTERS[found["letter"] or found["old"]]
    return {"WARN": "WARNING", "CRITICAL": "ERROR", "FATAL": "ERROR"}.get(word, word)
