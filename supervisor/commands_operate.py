"""`ciuic pause`, `resume`, `cancel`, `dump`: a request to whoever supervises the run, and the wait for its outcome."""

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")]
Where = Annotated[
    Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
]
Patience = Annotated[float, typer.Option("--wait", help="Seconds to wait for the outcome.")]

WAIT_S = 600.0
DUMP_WAIT_S = 60.0


def pause(run: Name, root: Where = None, wait: Patience = WAIT_S) -> None:
    """Save, give the nodes back, and keep quiet until `resume`."""
    _ask(run, "pause", root, wait)


def resume(run: Name, root: Where = None, wait: Patience = WAIT_S) -> None:
    """Go on with a paused or failed run."""
    _ask(run, "resume", root, wait)


def cancel(run: Name, root: Where = None, wait: Patience = WAIT_S) -> None:
    """End the run for good. Its checkpoints stay."""
    _ask(run, "cancel", root, wait)


def dump(run: Name, root: Where = None, wait: Patience = DUMP_WAIT_S) -> None:
    """Keep where every rank stands: stacks, flight recorders, GPU health. Training goes on."""
    _ask(run, "dump", root, wait)


def _ask(name: str, kind: str, root: Path | None, wait_s: float) -> None:
    from contract.requests import RequestKind
    from supervisor.choose import NoSuchRunError, find_run, root_of
    from supervisor.operate import ask

    place = root_of(root)
    try:
        found = find_run(place, name)
        outcome = ask(
            place, found, RequestKind(kind), wait_s=wait_s, say=lambda text: typer.echo(text, err=True)
        )
    except (NoSuchRunError, OSError) as error:
        typer.echo(f"{kind}: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{found.run_id}: {outcome.text}")
    if not outcome.ok:
        raise typer.Exit(1)
