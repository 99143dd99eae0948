"""What a log's file name says: the rank or the node that wrote it. Pure."""

import re
from dataclasses import dataclass

_RANK = re.compile(
    r"(?:^|[/:._-])(?:global[_-]?)?(?:rank|proc|task)[_.-]?(\d+)(?=[/._-]|$)|_(\d+)_log\.(?:out|err)(?:\.gz)?$",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"attempt_\d+/(\d+)/(?:std(?:out|err)\.log|error\.json)", re.IGNORECASE)
_NODE = re.compile(
    r"(?:^|[/:])attempts/\d{4}/logs/([\w.-]+)\.log(?:\.gz)?$|(?:^|[/:])([\w-]+)\.log(?:\.gz)?$"
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a file's lines come from. `node` holds only for the logs that a node agent of ours wrote."""

    rank: int | None = None
    local: int | None = None
    node: str = ""


def place_of(name: str) -> Place:
    """Read a file name."""
    rank, local, node = _RANK.search(name), _LOCAL.search(name), _NODE.search(name)
    return Place(
        rank=int(rank[1] or rank[2]) if rank else None,
        local=int(local[1]) if local else None,
        node=(node[1] or node[2]) if node else "",
    )
