"""How late news from other hosts may be here: network file systems keep attributes, and with them old content.

Measured from the beats: they move once a period on every node, so a node whose beat comes in lumps of 60 s is not a
node that is lost once a minute. Until it is measured, a network file system is granted its usual minute.
"""

from dataclasses import dataclass
from pathlib import Path

_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "pvfs2",
        "panfs",
        "9p",
    }
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuseblk"})
_CACHE_S = 60.0  # the usual limit of NFS's attribute cache (acregmax)
_MEASURE_S = 120.0  # two such caches: by then every node has shown its lumps
_LEAST_S = 5.0  # less is the jitter of a busy machine, which the limits have room for


@dataclass(kw_only=True)
class _Node:
    """When its beat moved, and its longest gap in this stretch of time and in the one before."""

    moved_at: float | None
    begun_at: float
    now_s: float = 0.0
    before_s: float = 0.0


class BeatLag:
    """The usual gap between two movements of a node's beat, beyond its period."""

    def __init__(self, place: Path) -> None:
        self._network = is_network(place)
        self._nodes: dict[str, _Node] = {}
        self._since: float | None = None

    def moved(self, node: str, now: float) -> None:
        """This node's beat has moved."""
        self._since = now if self._since is None else self._since
        known = self._nodes.setdefault(node, _Node(moved_at=None, begun_at=now))
        if now - known.begun_at > _MEASURE_S:
            known.begun_at, known.before_s, known.now_s = now, known.now_s, 0.0
        if known.moved_at is not None:
            known.now_s = max(known.now_s, now - known.moved_at)
        known.moved_at = now

    def forget_moves(self) -> None:
        """Another attempt, or our own eyes were shut: what lies in between is no gap."""
        for known in self._nodes.values():
            known.moved_at = None

    def seconds(self, beat_s: float, now: float) -> float:
        """By how much a beat may be late without meaning anything. Half of the nodes must be that late."""
        longest = sorted(max(known.now_s, known.before_s) for known in self._nodes.values())
        typical = longest[(len(longest) - 1) // 2] if longest else 0.0
        measured = typical - beat_s if typical - beat_s > _LEAST_S else 0.0
        unmeasured = self._since is None or now - self._since < _MEASURE_S
        return max(measured, _CACHE_S if self._network and unmeasured else 0.0)


@dataclass(frozen=True, kw_only=True)
class Mount:
    """Where a path is mounted from: kind of file system and options; empty when it cannot be told."""

    kind: str = ""
    options: tuple[str, ...] = ()


def mount_of(place: Path) -> Mount:
    """The mount that this path lies in."""
    best, mount = "", Mount()
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        here = f"{place.resolve()}/"
    except OSError:
        return mount
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()
        point = fields[4].rstrip("/") + "/"
        if here.startswith(point) and len(point) >= len(best):
            options = (*fields[5].split(","), *(source[2].split(",") if len(source) > 2 else ()))
            best, mount = point, Mount(kind=source[0], options=options)
    return mount


def is_network_kind(kind: str) -> bool:
    """Whether other hosts may write to such a file system."""
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def is_network(place: Path) -> bool:
    """Whether other hosts may write here. A mount that cannot be told is taken for a local one."""
    return is_network_kind(mount_of(place).kind)
