"""The port: what a place for copies can do, whatever it is, and how it says that it cannot."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from contract.manifest import Shard

PIECE = 32 << 20
"""Bytes of a piece: what is sent, verified and, after an interruption, sent again as one."""


class Trouble(StrEnum):
    """Why a copy could not be made or read."""

    CREDENTIALS = "credentials"
    REFUSED = "refused"
    MISSING = "missing"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CUT = "cut"
    SERVER = "server"
    CORRUPT = "corrupt"
    FULL = "full"
    READ_ONLY = "read-only"
    SOURCE = "source"
    LIBRARY = "library"
    DIED = "died"
    BEHIND = "behind"
    UNKNOWN = "unknown"


class StoreError(Exception):
    """The place did not do what was asked. The message is for people and holds no credential."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a shard: the bytes [offset, offset + size)."""

    shard: Shard
    number: int
    offset: int
    size: int

    @property
    def alone(self) -> bool:
        """Whether the shard is this one piece."""
        return self.shard.size <= PIECE


def pieces(shard: Shard) -> Iterator[Piece]:
    """The pieces of a shard in order; an empty file is one empty piece."""
    for number, offset in enumerate(range(0, max(1, shard.size), PIECE)):
        yield Piece(shard=shard, number=number, offset=offset, size=min(PIECE, shard.size - offset))


class Held(Protocol):
    """What a place had of one checkpoint when it was asked."""

    def has(self, piece: Piece, data: bytes) -> bool:
        """Whether this piece is there with this content."""

    def flaws(self, shards: Sequence[Shard]) -> str:
        """What is missing or has another size, "" when all of it is there."""


class Store(Protocol):
    """A place that holds copies of one run's checkpoints. Everything raises StoreError and nothing else."""

    @property
    def where(self) -> str:
        """The place for people: no credential is in it."""

    @property
    def workers(self) -> int:
        """Pieces that may be on their way at once."""

    def names(self) -> list[str]:
        """Names of all checkpoints of which there is anything, complete or not."""

    def manifest(self, name: str) -> bytes | None:
        """The manifest of a copy, None when it is not there: then the copy does not exist."""

    def held(self, name: str) -> Held:
        """What is there of this checkpoint."""

    def write(self, name: str, piece: Piece, data: bytes) -> None:
        """Store one piece; of one shard in order where `workers` is 1."""

    def read(self, name: str, piece: Piece) -> bytes:
        """The bytes of one piece, which may be wrong: whoever reads compares checksums."""

    def publish(self, name: str, manifest: bytes) -> None:
        """Make the copy exist: the manifest, after everything else."""

    def retire(self, name: str) -> None:
        """Make the copy not exist: the manifest, before anything else."""

    def clear(self, name: str) -> None:
        """Remove what is left of a retired copy."""


Environment = Mapping[str, str]
