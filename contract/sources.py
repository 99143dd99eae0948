"""Where a prepared data set lies: a directory, or a place in object storage (`s3://bucket/prefix`)."""

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from contract.config.copies import Service
from contract.config.data import INDEX, bucket_of, data_problem, index_problem
from contract.copies.bucket import Bucket
from contract.copies.store import StoreError
from contract.staged import read_exactly

_OPEN = 128  # files kept open: opening one again costs a round trip on a network file system


class Source(Protocol):
    """A data set's files, all in one place. Everything raises OSError and nothing else; several threads may read."""

    @property
    def where(self) -> str:
        """The place for people: no credential is in it."""

    def problem(self) -> str:
        """Why it cannot be trained from, "" when it can. Cheap."""

    def whole(self, name: str) -> bytes:
        """A small file.

        Raises:
            FileNotFoundError: it is not there.
        """

    def read(self, name: str, start: int, count: int) -> bytes:
        """Bytes [start, start + count): exactly these."""

    def close(self) -> None:
        """Keep nothing open."""


def open_source(path: str, service: Service, environment: Mapping[str, str]) -> Source:
    """The place that [data] path names. Nothing is asked for yet."""
    bucket, prefix = bucket_of(path)
    return BucketSource(bucket, prefix, service, environment) if bucket else FolderSource(Path(path))


class FolderSource:
    """A directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        return str(self.path)

    def problem(self) -> str:
        return data_problem(self.path)

    def whole(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def read(self, name: str, start: int, count: int) -> bytes:
        # Replaced by the same on the server, or a stale handle: once more, opened afresh.
        try:
            return read_exactly(self._opened(name), count, start)
        except OSError:
            self._forget(name)
            return read_exactly(self._opened(name), count, start)

    def close(self) -> None:
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])

    def _opened(self, name: str) -> int:
        with self._lock:
            if name not in self._files:
                self._files[name] = os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC)
                if len(self._files) > _OPEN:
                    os.close(self._files.popitem(last=False)[1])
            self._files.move_to_end(name)
            return self._files[name]

    def _forget(self, name: str) -> None:
        with self._lock:
            if name in self._files:
                os.close(self._files.pop(name))


class BucketSource:
    """Objects below a prefix. The client is made when it is first needed: not before a fork, and not to fail early."""

    def __init__(self, bucket: str, prefix: str, service: Service, environment: Mapping[str, str]) -> None:
        self._name, self._base = bucket, f"{prefix}/" if prefix else ""
        self._service, self._environment = service, environment
        self._bucket: Bucket | None = None

    @property
    def where(self) -> str:
        return f"s3://{self._name}/{self._base.rstrip('/')}"

    def problem(self) -> str:
        try:
            return index_problem(self.whole(INDEX), self.where)
        except FileNotFoundError:
            return f"{self.where}: no prepared data there (no {INDEX})"
        except OSError as error:
            return f"{self.where}: {error}"

    def whole(self, name: str) -> bytes:
        try:
            found = self._opened().get(self._base + name)
        except StoreError as error:
            raise OSError(str(error)) from None
        if found is None:
            raise FileNotFoundError(f"{self.where}/{name} is not there")
        return found

    def read(self, name: str, start: int, count: int) -> bytes:
        try:
            found = self._opened().part(self._base + name, start, count)
        except StoreError as error:
            raise OSError(f"{name}: {error}") from None
        if len(found) != count:
            raise OSError(f"{name}: {len(found)} bytes came, {count} were asked for")
        return found

    def close(self) -> None:
        self._bucket = None

    def _opened(self) -> Bucket:
        if self._bucket is None:
            self._bucket = Bucket(self._name, self.where, self._service, self._environment)
        return self._bucket
