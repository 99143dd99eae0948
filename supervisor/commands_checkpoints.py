"""`ciuic checkpoints`: it looks, and changes nothing."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.options import Lang
from supervisor.commands_looking import Json, Name, Where, find, out


def checkpoints(
    run: Name,
    root: Where = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything and compare the checksums.")
    ] = False,
    as_json: Json = False,
    lang: Lang = "",
) -> None:
    """All checkpoints with size and age, here and at the other places, and of those that do not count the reason.

    --verify reads the copies too. Exit 1 if it finds a damaged one, or a place cannot be read.
    """
    from contract.language import language
    from supervisor.copies.listing import copy_rows
    from supervisor.render import show_checkpoints, show_unreadable

    found = find(root, run)
    now = time.time()
    rows = _checkpoint_rows(found, deep=verify, now=now)
    copies, unreadable = copy_rows(found, deep=verify, now=now)
    rows += copies
    if as_json:
        out({"version": 1, "run": found.run_id, "checkpoints": rows, "unreadable": unreadable})
    else:
        show_checkpoints(rows, language(lang))
        show_unreadable(unreadable, language(lang))
    if verify and (unreadable or any(row["complete"] and not row["valid"] for row in rows)):
        raise typer.Exit(1)


def _checkpoint_rows(run: Any, *, deep: bool, now: float) -> list[dict[str, Any]]:
    """One row a directory. Size and age of one that is not complete are those of what is there of it."""
    from contract.manifest import directories, examine, in_lineage, read_resumes

    resumes = read_resumes(run)
    rows = []
    for item in (examine(directory, deep=deep) for directory in directories(run)):
        current = in_lineage(item.step, (item.attempt, item.generation), resumes)
        reason = item.reason or ("" if current else "rolled back: a later generation resumed before it")
        found = item.manifest
        size, changed = (found.size, found.saved_at) if found and found.saved_at else _on_disk(item.path)
        rows.append(
            {
                "where": "local",
                "step": item.step,
                "attempt": item.attempt,
                "generation": item.generation,
                "path": str(item.path),
                "complete": found is not None,
                "valid": item.valid and current,
                "reason": reason,
                "bytes": size,
                "age_s": round(max(0.0, now - changed), 1),
                "world_size": found.world_size if found else None,
                "val_loss": found.val_loss if found else None,
            }
        )
    return rows


def _on_disk(directory: Path) -> tuple[int, float]:
    """(bytes in files, when something last changed there, UTC seconds)."""
    size, changed = 0, 0.0
    for path in (directory, *directory.rglob("*")):
        try:
            status = path.stat()
        except OSError:  # removed meanwhile
            continue
        size += status.st_size if path.is_file() else 0
        changed = max(changed, status.st_mtime)
    return size, changed
