"""What Slurm says of nodes: which exist in a partition, and which of them do not answer their controller."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm.squeue import Ask, ask

# The first word of a node's state, without its suffix, in which no new job can start there.
_UNUSABLE = frozenset(
    {
        "DOWN",
        "DRAINED",
        "DRAINING",
        "DRAIN",
        "FAIL",
        "FAILING",
        "ERROR",
        "MAINT",
        "FUTURE",
        "INVAL",
        "POWERING_DOWN",
        "REBOOT",
        "UNKNOWN",
    }
)

_FACTS = 16  # nodes of which facts are kept
_FACTS_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """`responds`: the controller hears from it. `usable`: a job could start there, sooner or later.

    `reason`: why Slurm or somebody took it out of service, "" when nobody did.
    """

    responds: bool
    usable: bool
    reason: str = ""

    @property
    def failed_prolog(self) -> bool:
        """Slurm drains a node whose prolog failed, in these words."""
        return self.reason.lower().startswith("prolog error")


def keep_facts(names: Iterable[str], path: Path, ask: Ask = ask) -> None:
    """What Slurm says of these nodes, into this file. A controller that does not answer leaves that word there."""
    wanted = ",".join(list(names)[:_FACTS])
    questions = (
        ["scontrol", "show", "node", wanted],
        ["sinfo", "-N", "-n", wanted, "-o", "%N %T %E %H"],
    )
    parts = []
    for question in questions:
        answer = ask(question)
        parts.append(f"$ {' '.join(question)}\n{answer.out if answer else 'no answer'}\n")
    with contextlib.suppress(OSError):  # the run's recovery must not depend on it
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(parts)[:_FACTS_BYTES], encoding="utf-8", errors="replace")


def list_nodes(
    *, partition: str = "", names: Iterable[str] = (), ask: Ask = ask
) -> Mapping[str, NodeRow] | None:
    """These nodes, else those of the partition (of the default one, without a name); None without an answer."""
    wanted = ",".join(names)
    which = ["-n", wanted] if wanted else ["-p", partition] if partition else []
    answer = ask(["sinfo", "-h", "-N", *which, "-o", "%N|%T|%P|%E"])
    if answer is None or answer.code != 0:
        return None
    return parse_sinfo(answer.out, default_only=not which)


def parse_sinfo(text: str, *, default_only: bool = False) -> dict[str, NodeRow]:
    """Rows of `%N|%T|%P|%E`. A node that is in several partitions stands there several times."""
    rows = [parts for line in text.splitlines() if len(parts := line.strip().split("|", 3)) == 4 and parts[0]]
    if default_only and any(parts[2].endswith("*") for parts in rows):
        rows = [parts for parts in rows if parts[2].endswith("*")]
    found = {}
    for name, word, _, reason in rows:
        # `*` after the state: it does not answer. The other suffixes (~ # ! % $ @ ^ -) are about power and plans.
        state = word.rstrip("*~#!%$@^-").upper()
        found[name] = NodeRow(
            responds="*" not in word and state != "DOWN",
            usable=state not in _UNUSABLE,
            reason="" if reason == "none" else reason,
        )
    return found
