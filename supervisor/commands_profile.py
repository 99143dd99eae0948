"""`ciuic profile`: where the time of the next steps goes, and what earlier profiles said."""

import json
from pathlib import Path
from typing import Annotated

import typer

from contract.language import language, spoken
from contract.options import Lang
from supervisor.commands_operate import Name, Where, explained

_WAIT_S = 300.0


def profile(
    run: Name,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, max=20, help="Steps to profile; else as [profile] says.")
    ] = None,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N,N…", help="Ranks to profile; else as [profile] says.")
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Only show the newest one that is there.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs; with --show all that are there.")
    ] = False,
    lang: Lang = "",
    root: Where = None,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the outcome.")] = _WAIT_S,
) -> None:
    """Profile the next steps of a run that trains: a table of where the time went, and traces for Perfetto."""
    from supervisor.choose import NoSuchRunError, find_run, root_of
    from supervisor.profiles import facts, places, table

    words = language(lang)
    wanted = _ranks(ranks)
    place = root_of(root)
    try:
        found = find_run(place, run)
        there = places(found) if show else [_ask(place, found, steps or 0, wanted, wait)]
    except (NoSuchRunError, OSError, ValueError) as error:
        typer.echo(f"profile: {explained(error, place.path)}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(facts(found, there), ensure_ascii=False))
    elif there:
        typer.echo(table(there[-1], words))
        for older in there[:-1]:
            typer.echo(f"{'更早的：' if words == 'zh' else 'earlier: '}{older}")
    else:
        typer.echo(
            f"{found.run_id}：还没有性能分析；训练时用 `ciuic profile {found.run_id}` 生成"
            if words == "zh"
            else f"{found.run_id}: no profile yet; `ciuic profile {found.run_id}` makes one while it trains"
        )


def _ask(root: object, run: object, steps: int, ranks: list[int], wait_s: float) -> Path:
    """The directory of the profile that was made for us.

    Raises:
        ValueError: there is none, and why.
    """
    from contract.layout import Root, RunDir
    from contract.requests import RequestKind
    from supervisor.core.reasons import chinese
    from supervisor.operate import ask

    assert isinstance(root, Root)
    assert isinstance(run, RunDir)
    args = {"steps": steps, "ranks": ranks}

    def say(text: str) -> None:
        typer.echo(chinese(text, {}) if spoken() == "zh" else text, err=True)

    outcome = ask(root, run, RequestKind.PROFILE, wait_s=wait_s, say=say, args=args)
    if not outcome.ok:
        raise ValueError(outcome.told(spoken()))
    return Path(outcome.text.splitlines()[0])


def _ranks(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r}: ranks are whole numbers, as in 0,1")
    return [int(part) for part in parts]
