"""`ciuic alert-test`: does the robot work, before the night comes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def alert_test(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="Recipe with [alerts]; none: the defaults.")
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Facts for programs.")] = False,
) -> None:
    """Send one test message to each receiver of the recipe's [alerts], and say what arrived."""
    from contract.config import ConfigError, load, parse
    from supervisor.alert_test import try_receivers

    only = frozenset({"alerts"})
    try:
        found = (
            load(config, assign or [], only=only)
            if config
            else parse({}, source="defaults", bases=(), only=only)
        )
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(78) from None
    trials = try_receivers(found.alerts.receivers)
    if as_json:
        typer.echo(
            json.dumps({"version": 1, "receivers": [asdict(trial) for trial in trials]}, ensure_ascii=False)
        )
    for trial in () if as_json else trials:
        typer.echo(
            f"{trial.receiver}: {'delivered' if trial.delivered else f'NOT delivered: {trial.reason}'}"
        )
        if trial.hint:
            typer.echo(f"  {trial.hint}", err=True)
    if not trials:
        typer.echo("alert-test: [alerts] names no receiver: nobody will be told anything", err=True)
    if not trials or not all(trial.delivered for trial in trials):
        raise typer.Exit(1)
