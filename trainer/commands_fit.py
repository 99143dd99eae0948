"""`ciuic trainer fit`. Imports no torch: trials run in processes of their own."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.options import Lang
from contract.states import ExitCode
from trainer.chinese import TRAINER

if TYPE_CHECKING:
    from contract.config import RunConfig
    from trainer.batch.fit import Trial


def fit(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Recipe in TOML.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one value; repeatable."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, help="Try no larger micro-batch; else a rank's share of the global batch."
        ),
    ] = None,
    memory_gib: Annotated[
        float,
        typer.Option(min=0, help="Without GPUs: memory of one rank; 0 takes its share of what is free."),
    ] = 0,
    anew: Annotated[bool, typer.Option("--anew", help="Measure even if an earlier answer is kept.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the trials as JSON.")] = False,
    lang: Lang = "",  # noqa: ARG001 — its callback sets what `told` reads
) -> None:
    """Find the largest micro-batch that fits on this node, by real steps of the run's own model."""
    from contract import config as configuration
    from trainer.batch import fit as fitting

    try:
        wanted = configuration.load(config, overrides or ())
    except configuration.ConfigError as error:
        typer.echo(error.told(), err=True)
        raise typer.Exit(ExitCode.CONFIG) from error
    if wanted.job.command:
        _tell("fit: [job] command runs another program; only ciuic's own trainer can be tried", err=True)
        raise typer.Exit(ExitCode.CONFIG)
    memory = int(memory_gib * (1 << 30)) or fitting.free_memory(wanted)
    path = fitting.cache_file(wanted)
    known = [] if anew else fitting.kept(path, memory)
    bound = most or fitting.global_share(wanted)
    try:
        trials = _tried(wanted, known, bound, memory, path, quiet=json_output)
    except fitting.FitError as error:
        _tell(f"fit: {error}", err=True)
        raise typer.Exit(1) from error
    best = fitting.largest(trials)
    if json_output:
        lines = [
            {"micro_batch": t.micro_batch, "fits": t.fits, "peak": t.peak, "tokens_per_s": t.tokens_per_s}
            for t in trials
        ]
        typer.echo(json.dumps({"version": 1, "micro_batch": best, "trials": lines}))
    else:
        for line in _advice(wanted, trials, best):
            _tell(line)
        if best == bound and most is None:
            _tell(
                "Larger ones are not tried: the global batch has no more samples for a rank (--max N tries them)"
            )
    if not best:
        raise typer.Exit(1)


def _tried(
    wanted: "RunConfig", known: "list[Trial]", most: int, memory: int, path: Path, *, quiet: bool
) -> "list[Trial]":
    """All trials up to `most`. Each is kept when it is done: a search that is interrupted goes on where it was."""
    from trainer.batch import fit as fitting

    within = [trial for trial in known if trial.micro_batch <= most]
    done = list(known)
    if fitting.next_size({trial.micro_batch: trial.fits for trial in within}, most) is not None:
        _tell(
            f"Tries micro-batches up to {most} by real steps, which takes minutes; what is done is kept",
            err=True,
        )

    with tempfile.TemporaryDirectory() as directory:
        recipe = fitting.resolved(wanted, Path(directory))

        def attempt(size: int) -> "Trial":
            trial = fitting.try_size(recipe, wanted, size, memory)
            done.append(trial)
            fitting.keep(path, done)
            if not quiet:
                _tell(_line(trial))
            return trial

        for trial in [] if quiet else within:
            _tell(f"{_line(trial)} (measured before; --anew repeats it)")
        return fitting.search(most, attempt, within)


def _line(trial: "Trial") -> str:
    if not trial.fits:
        return f"micro-batch {trial.micro_batch:5d}: out of memory"
    return (
        f"micro-batch {trial.micro_batch:5d}: fits, {trial.peak / (1 << 30):.2f} GiB at the peak, "
        f"{trial.tokens_per_s:,.0f} tokens/s"
    )


def _advice(wanted: "RunConfig", trials: "list[Trial]", best: int) -> list[str]:
    if not best:
        return [
            "Not even one sample fits. Shorter [batch] sequence_length, a higher [deepspeed] zero_stage or offload_optimizer = true need less memory."
        ]
    fits = [trial for trial in trials if trial.fits]
    fastest = max(fits, key=lambda trial: trial.tokens_per_s)
    lines = [f"The largest that fits: [batch] micro_batch_size = {best}"]
    if fastest.tokens_per_s > 1.02 * next(t for t in fits if t.micro_batch == best).tokens_per_s:
        lines.append(f"The fastest measured: micro_batch_size = {fastest.micro_batch}")
    job = wanted.job
    if job.nodes > 1:
        lines.append(
            f"Measured with the {job.ranks_per_node} ranks of one node; {job.nodes} nodes divide optimizer states "
            "further, so a little more may fit."
        )
    return lines


def _tell(text: str, *, err: bool = False) -> None:
    """In the reader's language."""
    typer.echo(TRAINER.told(text), err=err)
