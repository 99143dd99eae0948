"""`ciuic check` and `ciuic submit`. Mounted by the command line; what they need is imported when they run."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.options import Lang
from contract.states import ExitCode
from slurm.commands_bench import app as bench
from slurm.commands_tune import tune

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.config import RunConfig
    from slurm.create import Outcome

ConfigPath = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Recipe in TOML, for example configs/tiny-local.toml.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one value; may be repeated."),
]


def mount(app: typer.Typer) -> None:
    """Add our commands to the command line."""
    app.command()(check)
    app.command()(submit)
    app.command()(tune)
    app.add_typer(bench, name="bench")


def check(
    config: ConfigPath,
    overrides: Overrides = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the learning rates; works before the data is prepared.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="With --plot: the curves as JSON.")] = False,
    lang: Lang = "",  # noqa: ARG001 — its callback sets what `told` reads
) -> None:
    """Validate a recipe and print every problem at once (exit 78)."""
    if json_output and not plot:
        raise typer.BadParameter("--json goes with --plot")
    if plot:
        _plot(config, overrides, json_output=json_output)
        return
    loaded = _load(config, overrides)
    job = loaded.job
    _tell(f"{config}: in order: {job.nodes} × {job.ranks_per_node} workers, executor {job.executor}")


def submit(
    config: ConfigPath,
    overrides: Overrides = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory of all runs (else CIUIC_ROOT, else run.root).")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what would run (on Slurm: the sbatch script) and submit nothing."
        ),
    ] = False,
    lang: Lang = "",  # noqa: ARG001 — its callback sets what `told` reads
) -> None:
    """Create a run and submit its first attempt. The last line of the output is the run id."""
    from contract.config import ConfigError
    from contract.language import spoken
    from contract.layout import RunDir
    from contract.plain import plainly
    from slurm.create import create_run, first_attempt, submission_problems
    from slurm.submit import local_dry_run, render_dry_run

    loaded = _load(config, overrides)
    place = Path(root or os.environ.get("CIUIC_ROOT") or loaded.run.root).expanduser().resolve()
    try:
        if dry_run:
            problems = submission_problems(loaded, place)
            if problems:
                raise ConfigError(str(config), problems)
            run = RunDir(path=place / f"{loaded.run.name}-dry-run")
            on_slurm = loaded.job.executor == "slurm"
            for line in [render_dry_run(run, loaded)] if on_slurm else local_dry_run(run, loaded):
                _tell(line)
            return
        run = create_run(loaded, place)
    except ConfigError as error:
        typer.echo(error.told(), err=True)
        raise typer.Exit(ExitCode.CONFIG) from error
    except OSError as error:
        _tell(f"{place}: no run can be created: {plainly(error, spoken())}", err=True)
        raise typer.Exit(ExitCode.FAILED) from error
    outcome = _told_when_slow(lambda: first_attempt(run, loaded), loaded)
    if outcome.problem:
        what = (
            "is created; whether it is in the queue the supervisor finds out"
            if outcome.doubtful
            else "is created, but not in the queue"
        )
        _tell(f"{run.run_id} {what}: {outcome.problem}", err=True)
    elif outcome.left_to_supervisor:
        _tell(f"the supervisor submits it, directory {run.path}")
    else:
        _tell(f"job {outcome.job_id}, directory {run.path}")
    typer.echo(run.run_id)
    if outcome.problem:
        raise typer.Exit(ExitCode.FAILED)


def _told_when_slow(submission: "Callable[[], Outcome]", config: "RunConfig") -> "Outcome":
    from slurm.create import FIND_S
    from slurm.patience import telling

    if config.job.executor != "slurm":
        return submission()
    most_s = config.supervisor.submit_timeout_s + FIND_S
    with telling(partial(_tell, err=True), f"waits for Slurm, for {most_s:.0f} s at most"):
        return submission()


def _plot(path: Path, overrides: list[str] | None, *, json_output: bool) -> None:
    """The schedule alone: of the recipe's problems only those matter that bend the curves."""
    import json

    from contract.schedule import sampled
    from slurm.plot import NEEDED, drawn

    loaded = _load(path, overrides, only=NEEDED)
    curves = sampled(loaded)
    if json_output:
        typer.echo(json.dumps(curves))
        return
    pictures, words = drawn(loaded, curves)
    typer.echo(pictures)
    for line in words:
        _tell(line)


def _tell(text: str, *, err: bool = False) -> None:
    """In the reader's language."""
    from slurm.chinese import SUBMISSION

    typer.echo(SUBMISSION.told(text), err=err)


def _load(path: Path, overrides: list[str] | None, *, only: frozenset[str] = frozenset()) -> "RunConfig":
    from contract.config import ConfigError, load

    try:
        return load(path, overrides or (), only=only)
    except ConfigError as error:
        typer.echo(error.told(), err=True)
        raise typer.Exit(ExitCode.CONFIG) from error
