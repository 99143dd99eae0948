"""The copies of a run's checkpoints as `ciuic checkpoints` shows them: asked at the places, not remembered."""

import os
from typing import Any

from contract.config import read_resolved
from contract.copies.fetch import examine
from contract.copies.store import StoreError
from contract.copies.target import Kind, open_store, wanted
from contract.layout import RunDir, parse_checkpoint_name
from contract.manifest import Checkpoint, in_lineage, read_resumes


def copy_rows(run: RunDir, *, deep: bool, now: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(a row for each copy, newest first; a row for each place that does not answer). Ages are those of the original."""
    config = read_resolved(run.config)
    resumes = read_resumes(run)
    rows, unreadable = [], []
    for kind in wanted(config):
        try:
            store = open_store(config, kind, run.run_id, os.environ)
            names = sorted(
                store.names(), key=lambda name: parse_checkpoint_name(name) or (0, 0, 0), reverse=True
            )
            found = [examine(store, name, deep=deep) for name in names]
            rows += [_row(kind, item, store.where, resumes, now) for item in found]
        except StoreError as error:
            unreadable.append({"where": kind.value, "trouble": error.trouble.value, "reason": str(error)})
    return rows, unreadable


def _row(
    kind: Kind, item: Checkpoint, where: str, resumes: dict[tuple[int, int], int], now: float
) -> dict[str, Any]:
    what = item.manifest
    current = in_lineage(item.step, (item.attempt, item.generation), resumes)
    return {
        "where": kind.value,
        "step": item.step,
        "attempt": item.attempt,
        "generation": item.generation,
        "path": f"{where.rstrip('/')}/{item.path.name}",
        "complete": what is not None,
        "valid": item.valid and current,
        "reason": item.reason or ("" if current else "rolled back: a later generation resumed before it"),
        "bytes": what.size if what else None,
        "age_s": round(max(0.0, now - what.saved_at), 1) if what and what.saved_at else None,
        "world_size": what.world_size if what else None,
        "val_loss": what.val_loss if what else None,
    }
