"""`ciuic replay`: the decisions over a recorded journal."""

import json
from pathlib import Path
from typing import Annotated

import typer


def replay(
    journal: Annotated[
        Path, typer.Argument(metavar="JOURNAL", help="journal.jsonl, or the run directory it lies in.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Facts for programs.")] = False,
) -> None:
    """Judge a recorded journal again, verdict by verdict. Exit 1 if one comes out differently."""
    from contract.config import RunConfig, read_resolved
    from contract.journal import JournalReader
    from supervisor.replay import replay as judge_again

    path = journal / "journal.jsonl" if journal.is_dir() else journal
    if not path.exists():
        typer.echo(f"replay: {path}: no such journal", err=True)
        raise typer.Exit(1)
    recipe = path.with_name("run.toml")
    config = read_resolved(recipe) if recipe.exists() else RunConfig()
    reader = JournalReader(path)
    events = reader.new()
    if not events:
        what = reader.problems[0] if reader.problems else "it is empty"
        typer.echo(f"replay: {path} is not a journal: {what}", err=True)
        raise typer.Exit(1)
    found = judge_again(events, config)
    if as_json:
        typer.echo(
            json.dumps({"version": 1, "verdicts": [item.facts() for item in found]}, ensure_ascii=False)
        )
    else:
        for item in found:
            typer.echo(
                f"{'same     ' if item.same else 'DIFFERENT'}  {item.recorded.verdict}: {item.recorded.reason}"
            )
            if not item.same:
                typer.echo(f"           now {item.again.kind}: {item.again.reason}")
        typer.echo(
            f"verdicts judged again: {len(found)}, the same as recorded: {sum(item.same for item in found)}"
        )
    raise typer.Exit(0 if all(item.same for item in found) else 1)
