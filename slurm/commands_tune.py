"""`ciuic tune`: the network and the settings of this node, or the network of a recorded one."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contract.options import Lang
from contract.states import ExitCode

if TYPE_CHECKING:
    from slurm.node.choose import Choice
    from slurm.node.settings import Setting

_SYSFS = Path("/sys")
_STATE = Path("/run/ciuic/tuning")  # as in apply.py, which is imported when it is needed


def tune(
    sysfs: Annotated[
        Path | None,
        typer.Option(metavar="ROOT", help="A recorded sysfs with addresses.json, instead of this node."),
    ] = None,
    interface: Annotated[str, typer.Option(help="What [node] interface says: it wins.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Also say what was not taken, and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for programs.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="As root: set what is wrong, remember it.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="As root: put back what was changed.")] = False,
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Where --apply remembers; prolog and epilog use the same.")
    ] = _STATE,
    lang: Lang = "",
) -> None:
    """Show the network and the settings of this node, or of a recorded one; exit 1 when no network is usable."""
    if apply and restore:
        raise typer.BadParameter("--apply and --restore exclude each other")
    if (apply or restore) and sysfs is not None:
        raise typer.BadParameter("a recorded node cannot be changed")
    if apply or restore:
        _change(state, put_back=restore)
        return
    from contract.language import language
    from slurm.node.chinese import NODE
    from slurm.node.settings import read_settings

    choice = _choice(sysfs or _SYSFS, interface)
    settings = [] if sysfs else read_settings()
    if as_json:
        typer.echo(json.dumps(choice.as_json() | _facts(settings), indent=1))
    else:
        _show(choice, settings, explain=explain, to=language(lang))
    if not choice.ok:
        typer.echo(NODE.told(f"no network: {choice.reason}", "en" if as_json else ""), err=True)
        raise typer.Exit(ExitCode.FAILED)


def _facts(settings: "list[Setting]") -> dict[str, Any]:
    """The settings as JSON; a recorded node has none."""
    known = [
        {"name": item.name, "found": item.found, "wanted": item.wanted, "state": item.state, "fix": item.fix}
        for item in settings
    ]
    return {"settings": known} if known else {}


def _show(choice: "Choice", settings: "list[Setting]", *, explain: bool, to: str) -> None:
    from slurm.node import explain as words

    lines = words.story(choice, to) if explain else words.summary(choice, to)
    typer.echo("\n".join([*lines, *(["", *words.table(settings, to)] if settings else [])]))


def _change(state: Path, *, put_back: bool) -> None:
    """Apply or restore; exit 1 when something did not become what it should."""
    from slurm.node.apply import apply, restore
    from slurm.node.chinese import NODE
    from slurm.node.settings import read_settings

    holder = os.environ.get("SLURM_JOB_ID") or "manual"
    others: list[str] = []
    try:
        if put_back:
            changes, others = restore(state, holder)
        else:
            changes = apply(read_settings(), state, holder)
    except OSError as error:
        what = f"{error.filename or state}: {error.strerror} (only root changes a node)"
        typer.echo(NODE.told(what), err=True)
        raise typer.Exit(ExitCode.FAILED) from error
    for change in changes:
        typer.echo(NODE.told(str(change)), err=bool(change.problem))
    if others:
        typer.echo(NODE.told(f"still needed by {', '.join(others)}: nothing put back"))
    elif not changes:
        typer.echo(NODE.told("nothing to change"))
    if any(change.problem for change in changes):
        raise typer.Exit(ExitCode.FAILED)


def _choice(root: Path, interface: str) -> "Choice":
    """What there is to say, even when only half of it can be read."""
    from dataclasses import replace

    from slurm.node.addresses import Addresses, read_addresses
    from slurm.node.choose import Choice, choose
    from slurm.node.explicit import Wanted
    from slurm.node.sysfs import read_machine

    problem, addresses = "", Addresses()
    try:
        addresses = read_addresses(root)
    except (OSError, ValueError) as error:
        problem = str(error)
    try:
        machine = read_machine(root, addresses)
    except OSError as error:
        return Choice(reason=str(error))
    choice = choose(machine, Wanted.from_environment(os.environ, interface))
    return replace(choice, reason=f"{problem}; {choice.reason}") if problem else choice
