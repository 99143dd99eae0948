"""What Slurm says of nodes: which exist in a partition, and which of them do not answer their controller."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
