"""Copies in object storage, through obstore. One object a piece, so that nothing is ever half an object.

A shard of several pieces becomes `NAME.piece-00000`, `.piece-00001` …: `cat` of them in order is the shard. Each is
one signed PUT, which the server checks against the signature's SHA-256 and we against the MD5 that it answers.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.config.copies import Mirror
from contract.copies.bucket import Bucket
from contract.copies.store import Environment, Piece, StoreError, Trouble, pieces
from contract.layout import parse_checkpoint_name
from contract.manifest import NAME, Shard

_MD5 = re.compile(r'"?([0-9a-f]{32})"?\Z')


@dataclass(frozen=True, kw_only=True)
class S3Held:
    """Objects below one checkpoint: key → (size, MD5, or "" where the server does not tell)."""

    base: str
    objects: Mapping[str, tuple[int, str]]

    def has(self, piece: Piece, data: bytes) -> bool:
        size, md5 = self.objects.get(self.base + key_of(piece), (-1, ""))
        return size == len(data) and md5 in {"", _md5(data)}

    def flaws(self, shards: Sequence[Shard]) -> str:
        for piece in (piece for shard in shards for piece in pieces(shard)):
            size, _ = self.objects.get(self.base + key_of(piece), (-1, ""))
            if size != piece.size:
                return f"{key_of(piece)} is missing" if size < 0 else f"{key_of(piece)} has {size} bytes"
        return ""


def key_of(piece: Piece) -> str:
    return piece.shard.path if piece.alone else f"{piece.shard.path}.piece-{piece.number:05d}"


class S3Store:
    """The copies of one run below `s3://bucket/prefix/run_id/`."""

    workers = 4

    def __init__(
        self, bucket: str, prefix: str, run_id: str, settings: Mirror, environment: Environment
    ) -> None:
        self._base = f"{prefix}/{run_id}/" if prefix else f"{run_id}/"
        self.where = f"s3://{bucket}/{self._base}"
        self._bucket = Bucket(bucket, self.where, settings, environment)
        self._library, self._client, self._told = (
            self._bucket.library,
            self._bucket.client,
            self._bucket.told,
        )

    def names(self) -> list[str]:
        with self._told():
            found = self._library.list_with_delimiter(self._client, self._base)["common_prefixes"]
            # Some services go on listing a folder whose last object was removed.
            filled = [path.rstrip("/") for path in found if self._first_page(path)]
        return [name for path in filled if parse_checkpoint_name(name := path.rpartition("/")[2])]

    def manifest(self, name: str) -> bytes | None:
        return self._bucket.get(f"{self._base}{name}/{NAME}")

    def held(self, name: str) -> S3Held:
        base = f"{self._base}{name}/"
        found = {}
        with self._told():
            for page in self._client.list(base):
                for item in page:
                    md5 = _MD5.match(item["e_tag"] or "")
                    found[item["path"]] = (item["size"], md5[1] if md5 else "")
        return S3Held(base=base, objects=found)

    def write(self, name: str, piece: Piece, data: bytes) -> None:
        self._put(f"{self._base}{name}/{key_of(piece)}", data)

    def read(self, name: str, piece: Piece) -> bytes:
        key = f"{self._base}{name}/{key_of(piece)}"
        data = self._bucket.get(key)
        if data is None:
            raise StoreError(Trouble.MISSING, f"{key} is missing")
        return data

    def publish(self, name: str, manifest: bytes) -> None:
        self._put(f"{self._base}{name}/{NAME}", manifest)

    def retire(self, name: str) -> None:
        with self._told():
            self._client.delete([f"{self._base}{name}/{NAME}"])

    def clear(self, name: str) -> None:
        keys = list(self.held(name).objects)
        with self._told():
            self._client.delete(keys)

    def _first_page(self, path: str) -> list[Any]:
        return next(iter(self._client.list(path.rstrip("/") + "/", chunk_size=1)), [])

    def _put(self, key: str, data: bytes) -> None:
        with self._told():
            answer = self._library.put(self._client, key, data, use_multipart=False)
        told = _MD5.match(answer["e_tag"] or "")
        if told and told[1] != _md5(data):
            raise StoreError(Trouble.CORRUPT, f"{key} arrived with another checksum than it was sent with")


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
