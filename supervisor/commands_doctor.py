"""`ciuic doctor`: what on this machine will hurt a run."""

from pathlib import Path
from typing import Annotated

import typer

from contract.options import Lang


def doctor(
    config: Annotated[Path | None, typer.Option(metavar="CONFIG", help="Recipe that will be run.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
    ] = None,
    alert: Annotated[
        bool, typer.Option("--alert", help="Also send one test message to each receiver of [alerts].")
    ] = False,
    copies: Annotated[
        bool, typer.Option("--copies", help="Also ask the places of [mirror] and [backup].")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for programs.")] = False,
    lang: Lang = "",
) -> None:
    """Examine Slurm, the runs' file system, packages and this machine; exit 1 when runs will not work.

    Changes nothing, except that it writes and removes a small directory beside the runs. Takes 45 seconds at most.
    """
    import json
    from dataclasses import asdict

    from contract.config import ConfigError, load
    from contract.language import language
    from contract.states import ExitCode
    from supervisor.choose import root_of
    from supervisor.doctor.examine import examine
    from supervisor.doctor.finding import exit_code, report

    if (alert or copies) and config is None:
        raise typer.BadParameter("--alert and --copies need --config: the recipe says where to")
    try:
        if config is not None:
            load(config)
    except ConfigError as error:
        typer.echo(error.told(), err=True)
        raise typer.Exit(ExitCode.CONFIG) from error
    probes = ["slurm", "storage", "packages", "machine", *["alerts"] * alert, *["copies"] * copies]
    findings = examine(probes, root_of(root).path, config.resolve() if config else None)
    typer.echo(
        json.dumps(
            {"version": 1, "findings": [asdict(item) for item in findings]}, indent=1, ensure_ascii=False
        )
        if as_json
        else "\n".join(report(findings, language(lang)))
    )
    raise typer.Exit(exit_code(findings, strict=strict))
