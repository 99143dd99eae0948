"""`ciuic report`: one HTML file that tells a run's life, fit for a post-mortem."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from contract.options import Lang


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write it; - is stdout; else RUN.html here."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Its facts for programs, on stdout.")] = False,
    lang: Lang = "",
) -> None:
    """Write one HTML file that needs no network: the run's life, curves, faults, and where its time went."""
    from contract.language import language
    from contract.plain import plainly
    from supervisor.choose import NoSuchRunError, find_run, root_of
    from supervisor.report.make import report_facts
    from supervisor.report.page import page

    try:
        found = find_run(root_of(root), run)
        facts = report_facts(found, time.time(), time.monotonic())
        if as_json:
            typer.echo(json.dumps(facts, ensure_ascii=False))
            return
        text = page(facts, language(lang))
        if output == Path("-"):
            typer.echo(text, nl=False)
            return
        place = output or Path(f"{found.run_id}.html")
        place.write_text(text, encoding="utf-8")
    except (NoSuchRunError, OSError, ValueError) as error:
        typer.echo(f"report: {plainly(error, language(lang))}", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(place))
