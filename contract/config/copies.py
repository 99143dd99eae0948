"""[mirror] and [backup]: copies of checkpoints at other places, made in the background by the supervisor."""

import re
from typing import Annotated, Literal

from pydantic import Field

from contract.config.base import Section

_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+\Z")


class _Copied(Section):
    """What both have in common."""

    period_minutes: Annotated[float, Field(ge=0, le=60 * 24 * 30)] = 0.0
    """Least time between two copies. 0: every newest checkpoint; those in between are passed over, never queued."""
    keep_last: Annotated[int, Field(ge=1)] = 3
    """Complete copies that are kept there."""
    bandwidth_mb_s: Annotated[float, Field(ge=0)] = 0.0
    """Most megabytes a second that are sent or fetched; 0: no limit."""
    alert_minutes: Annotated[float, Field(ge=0)] = 30.0
    """A copy that is behind the newest checkpoint for so long is told to people."""


class Service(Section):
    """An S3-compatible service. Keys come from the environment only (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."""

    endpoint: str = ""
    """Address of an S3-compatible service (MinIO, Ceph, OSS, COS), without bucket, path or user; "": Amazon's."""
    region: str = "us-east-1"
    """Region that requests are signed for; OSS and COS check it."""
    style: Literal["path", "virtual-host"] = "path"
    """Where the bucket stands in an address: `virtual-host` for OSS and COS, `path` for MinIO and Ceph."""
    request_timeout_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """A request that has not ended after so long is given up and repeated. It carries 32 MiB at most."""

    def contradictions(self) -> list[str]:
        if self.endpoint and not _ADDRESS.match(self.endpoint):
            # Not echoed: whoever writes a key into an address must not find it in a log.
            return ['endpoint: takes "https://host" or "https://host:port", without bucket, path or user']
        return []


class Mirror(_Copied, Service):
    """Object storage. Where to is the label `ciuic.io/checkpoint-path`; keys come from the environment only."""


class Backup(_Copied):
    """A second directory, on another file system."""

    directory: str = ""
    """Where to, an absolute path; "": no backup. Each copy is a checkpoint directory that can be moved back."""
    period_minutes: Annotated[float, Field(ge=0, le=60 * 24 * 30)] = 60.0

    def contradictions(self) -> list[str]:
        if self.directory and not self.directory.startswith("/"):
            return [f"directory: {self.directory!r} is not an absolute path"]
        return []
