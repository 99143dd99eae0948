"""`ciuic supervise`: the daemon."""

from pathlib import Path
from typing import Annotated

import typer

_COMMAND_S = 30.0  # a person's command that does its work alone is waited for so long


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
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port",
            envvar="CIUIC_METRICS_PORT",
            min=0,
            max=65_535,
            help="Serve /metrics for Prometheus at 127.0.0.1 and this port; 0: not at all.",
        ),
    ] = 0,
    page_port: Annotated[
        int,
        typer.Option(
            "--page-port",
            envvar="CIUIC_PAGE_PORT",
            min=0,
            max=65_535,
            help="Serve the live page at this port; 0: not at all.",
        ),
    ] = 0,
    page_host: Annotated[
        str,
        typer.Option(
            "--page-host",
            envvar="CIUIC_PAGE_HOST",
            help="Address of this machine for the page; any other than 127.0.0.1 or ::1 needs CIUIC_PAGE_TOKEN.",
        ),
    ] = "127.0.0.1",
) -> None:
    """Watch over all runs under the root: see, restart, tell. Its end leaves the jobs alone."""
    import os

    from supervisor.adapters.leadership import RefusedError, take
    from supervisor.adapters.systemd import credentials
    from supervisor.choose import root_of
    from supervisor.daemon import Daemon, Options
    from supervisor.log import line_log
    from supervisor.page.door import page_place

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
        page = page_place(page_host, page_port, os.environ)
        leadership = take(place, takeover=takeover, patience_s=_COMMAND_S, say=say)
    except (RefusedError, OSError, ValueError) as error:
        typer.echo(f"supervise: {error}", err=True)
        raise typer.Exit(1) from None
    options = Options(
        once=once, until_done=until_done, ping_s=ping_every, metrics_port=metrics_port, page=page
    )
    try:
        daemon = Daemon(place, leadership, options, say)
    except OSError as error:
        leadership.release()
        typer.echo(f"supervise: {error}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(daemon.run())
