"""Which copies a run wants, and opening the place of one."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from contract.config import RunConfig
from contract.config.copies import Backup, Mirror
from contract.copies.folder import FolderStore
from contract.copies.s3 import S3Store
from contract.copies.store import Store


class Kind(StrEnum):
    """The two kinds of copies."""

    MIRROR = "mirror"
    BACKUP = "backup"


def wanted(config: RunConfig) -> tuple[Kind, ...]:
    """The copies that this run wants, the nearest first: from there a restore is quicker."""
    backup = (Kind.BACKUP,) if config.backup.directory else ()
    return (*backup, Kind.MIRROR) if config.metadata.bucket[0] else backup


def settings_of(config: RunConfig, kind: Kind) -> Mirror | Backup:
    return config.mirror if kind is Kind.MIRROR else config.backup


def open_store(config: RunConfig, kind: Kind, run_id: str, environment: Mapping[str, str]) -> Store:
    """The place of these copies.

    Raises:
        StoreError: no credentials, or no library for it.
    """
    if kind is Kind.BACKUP:
        return FolderStore(Path(config.backup.directory), run_id)
    bucket, prefix = config.metadata.bucket
    return S3Store(bucket, prefix, run_id, config.mirror, environment)
