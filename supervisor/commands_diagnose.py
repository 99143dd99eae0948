"""`ciuic diagnose`: what killed a job, from its log files alone."""

import json
from typing import Annotated

import typer

from contract.options import Lang


def diagnose(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG…", help="Log files, directories, archives (.gz, .tar, …), or - for stdin."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Facts for programs.")] = False,
    lang: Lang = "",
) -> None:
    """What killed this job: any launcher's logs, of one rank or of all."""
    from contract.language import language
    from supervisor.diagnose.run import diagnose as run
    from supervisor.diagnose.show import problems, told

    outcome = run(logs)
    words = language(lang)
    for line in problems(outcome, words):
        typer.echo(line, err=True)
    if outcome.diagnosis is None:
        typer.echo("\n".join(told(outcome, words)), err=True)
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(outcome.diagnosis.json(), ensure_ascii=False))
    else:
        typer.echo("\n".join(told(outcome, words)))
