"""The copies of a run's checkpoints as `ciuic checkpoints` shows them: asked at the places, not remembered."""

import os
from typing import Any

from contract.config import read_resolved
from contract.copies.fetch import examine
from contract.copies.store import StoreError
from contract.copies.target import Kind, open_store, wanted
from contract.layout import RunDir, parse_checkpoint_name
from contract.manifest import Checkpoint, in_lineage, read_resumes


def copy_rows(run: RunDir, *, deep: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(a row for each copy, newest first; a row for each place that does not answer)."""
    config = read_resolved(run.config)
    resumes = read_resumes(run)
    rows, unreadable = [], []
    for kind in wanted(config):
        try:
            store = open_store(config, kind, run.run_id, os.environ)
            names = sorted(
                store.names(), key=lambda name: parse_checkpoint_name(name) or (0, 0, 0), reverse=True
            )
            rows += [_row(kind, examine(store, name, deep=deep), store.where, resumes) for name in names]
        except StoreError as error:
            unreadable.append({"where": kind.value, "trouble": error.trouble.value, "reason": str(error)})
    return rows, unreadable


def _row(kind: Kind, item: Checkpoint, where: str, resumes: dict[tuple[int, int], int]) -> dict[str, Any]:
    current = in_lineage(item.step, (item.attempt, item.generation), resumes)
    return {
        "where": kind.value,
        "step": item.step,
        "attempt": item.attempt,
        "generation": item.generation,
        "path": f"{where.rstrip('/')}/{item.path.name}",
        "complete": item.manifest is not None,
        "valid": item.valid and current,
        "reason": item.reason or ("" if current else "rolled back: a later generation resumed before it"),
        "bytes": sum(shard.size for shard in item.manifest.shards) if item.manifest else None,
    }
