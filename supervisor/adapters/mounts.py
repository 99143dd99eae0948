"""On what kind of file system a directory lies: whether other hosts can write to it without our kernel knowing."""

import os
import re
from pathlib import Path

# Types whose files other hosts may change. On these inotify sees only this host's writes.
_SHARED = re.compile(
    r"nfs\d?$|lustre|gpfs|beegfs|ceph|glusterfs|9p$|virtiofs|cifs|smb\d?|smbfs|afs|ocfs2|gfs2?$|panfs|wekafs|pvfs2|orangefs"
    r"|quobyte|daos|juicefs|fuse($|\.)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path, mountinfo: str) -> str:
    """The type of the mount that holds this path, by the text of /proc/self/mountinfo; "" where none is found."""
    real, best, kind = os.path.realpath(path), -1, ""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) < 5 or not tail:
            continue
        place = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:  # the later of two on one place lies on top
            best, kind = len(place), tail.split(" ", 1)[0]
    return kind


def is_shared(kind: str) -> bool:
    """Whether events of this kernel are not enough. An unknown type ("") counts as shared: polling is always right."""
    return not kind or _SHARED.match(kind) is not None
