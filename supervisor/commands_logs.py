"""`ciuic logs`: it looks, and changes nothing."""

import sys
from typing import Annotated

import typer

from contract.options import Lang
from supervisor.commands_looking import Name, Where, fail, find, wait

_LOOK_S = 0.5  # between two looks at the logs
_FIRST_LINES = 20  # of a followed log


def logs(  # noqa: PLR0913, PLR0917 - each is an option of the command
    run: Name,
    root: Where = None,
    attempt: Annotated[int, typer.Option(min=-1, help="Attempt; 0 is the newest, -1 all.")] = 0,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    rank: Annotated[int, typer.Option(min=-1, help="Only what this rank wrote; -1: everything.")] = -1,
    grep: Annotated[str, typer.Option(help="Only lines in which this regular expression is found.")] = "",
    tail: Annotated[int, typer.Option(min=0, help="Only the last so many lines; 0 is all.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One object a line, for programs.")] = False,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    lang: Lang = "",
) -> None:
    """The output of all nodes of an attempt, merged by time."""
    del lang  # its messages ask what is spoken
    import re

    from supervisor.logs import NoSuchLogError, Wanted, follow, merged

    try:
        pattern = re.compile(grep) if grep else None
    except re.error as error:
        raise typer.BadParameter(f"{grep}: {error}", param_hint="--grep") from None
    wanted = Wanted(attempt=attempt, node=node, rank=rank, pattern=pattern, as_json=as_json)
    place = find(root, run)
    try:
        lines = (
            follow(place, wanted, tail or _FIRST_LINES, lambda: wait(_LOOK_S))
            if following
            else merged(place, wanted, tail)
        )
        for line in lines:
            sys.stdout.write(line)
            if following:
                sys.stdout.flush()
    except BrokenPipeError:  # `ciuic logs … | head`
        sys.stdout = None
    except KeyboardInterrupt:
        return
    except (NoSuchLogError, OSError) as error:
        fail("logs", error)
