"""`ciuic alert-test`: does the robot work, before the night comes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from contract.options import Lang


def alert_test(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="Recipe with [alerts]; none: the defaults.")
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Facts for programs.")] = False,
    lang: Lang = "",
) -> None:
    """Send one test message to each receiver of the recipe's [alerts], and say what arrived."""
    from contract.config import ConfigError, load, parse
    from contract.language import language
    from supervisor.alert_test import try_receivers
    from supervisor.core.reasons import chinese
    from supervisor.words import text

    only = frozenset({"alerts"})
    try:
        found = (
            load(config, assign or [], only=only)
            if config
            else parse({}, source="defaults", bases=(), only=only)
        )
    except ConfigError as error:
        typer.echo(error.told("en" if as_json else ""), err=True)
        raise typer.Exit(78) from None
    words = language("en" if as_json else lang)
    trials = try_receivers(found.alerts.receivers, lang=words)
    if as_json:
        typer.echo(
            json.dumps({"version": 1, "receivers": [asdict(trial) for trial in trials]}, ensure_ascii=False)
        )
    for trial in () if as_json else trials:
        said = chinese(trial.reason, {}) if words == "zh" else trial.reason
        outcome = "delivered" if trial.delivered else "not-delivered"
        typer.echo(text(outcome, words, name=trial.receiver, why=said))
        if trial.hint:
            typer.echo(f"  {trial.hint}", err=True)
    if not trials:
        typer.echo(f"alert-test: {text('no-receiver', words)}", err=True)
    if not trials or not all(trial.delivered for trial in trials):
        raise typer.Exit(1)
