"""`ciuic supervise`: the daemon."""

from pathlib import Path
from typing import Annotated

import typer


def supervise(
    root: Annotated[
        Path | None, typer.Option(help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One complete look at every run, do what is due, end.")
    ] = False,
    until_done: Annotated[bool, typer.Option("--until-done", help="End when every run is final.")] = False,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Take over from a supervisor on a host that cannot be reached.")
    ] = False,
    ping_every: Annotated[
        float, typer.Option("--ping-every", min=1, help="Seconds between two calls of CIUIC_PING_URL.")
    ] = 60.0,
) -> None:
    """Watch over all runs under the root: see, restart, tell. Its end leaves the jobs alone."""
    import os

    from supervisor.adapters.leadership import RefusedError, take
    from supervisor.adapters.systemd import credentials
    from supervisor.choose import root_of
    from supervisor.daemon import Daemon, Options
    from supervisor.log import line_log

    place = root_of(root)
    say = line_log()
    if not place.path.is_dir():
        # Not made here: a mistyped root would be watched for ever while the runs elsewhere are not.
        typer.echo(
            f"supervise: {place.path} is no directory; the first `ciuic submit` makes it, or: mkdir -p {place.path}",
            err=True,
        )
        raise typer.Exit(1)
    try:
        os.environ.update(credentials(os.environ))
        leadership = take(place, takeover=takeover)
    except (RefusedError, OSError) as error:
        typer.echo(f"supervise: {error}", err=True)
        raise typer.Exit(1) from None
    code = Daemon(place, leadership, Options(once=once, until_done=until_done, ping_s=ping_every), say).run()
    raise typer.Exit(code)
