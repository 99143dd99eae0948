"""`ciuic status`: it looks, and changes nothing."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.options import Lang
from supervisor.commands_looking import (
    Json,
    Where,
    facts_of,
    find,
    out,
    patience,
    read,
    read_of,
    tell_silence,
    unwatched_s,
    wait,
)

MaybeName = Annotated[
    str, typer.Argument(metavar="[RUN]", help="Run id, or the beginning of one; none: all runs.")
]
_WATCH_S = 2.0


def status(
    run: MaybeName = "",
    root: Where = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Live, until interrupted. Reads files, never asks Slurm.")
    ] = False,
    as_json: Json = False,
    lang: Lang = "",
) -> None:
    """How all runs are, or one run in detail."""
    from contract.language import language
    from supervisor.render import show_run, show_runs

    if watch:
        if as_json:
            raise typer.BadParameter("--watch is for people; a program calls status --json again")
        _watch(root, run, language(lang))
        return
    slurm = patience()
    if run:
        now = time.time()
        reading = read(root, run, now, slurm)
        if as_json:
            out(facts_of(reading, seen=unwatched_s(root, reading, now) is not None))
        else:
            age = unwatched_s(root, reading, now)
            show_run(
                facts_of(reading, language(lang), seen=age is not None),
                _trend(root, run),
                language(lang),
                age,
            )
        tell_silence(slurm, language(lang))
        return
    rows, place, holder = _all_facts(root, slurm, lang="en" if as_json else language(lang))
    if as_json:
        out({"version": 1, "runs": rows})
    else:
        show_runs(rows, place, holder, language(lang))
    tell_silence(slurm, language(lang))


def _watch(root: Path | None, name: str, lang: str) -> None:
    """The same picture again and again, in place."""
    from rich.live import Live

    from supervisor.render import console_for_live, run_view, runs_view

    seen: dict[str, Any] = {}  # run → its observer: whether a beat moves shows only over time

    def look() -> Any:
        if name:
            now = time.time()
            reading = read(root, name, now, None, seen)
            age = unwatched_s(root, reading, now)
            return run_view(facts_of(reading, lang, seen=age is not None), _trend(root, name), lang, age)
        return runs_view(*_all_facts(root, None, seen, lang), lang)

    try:
        with Live(look(), console=console_for_live(), auto_refresh=False, screen=False) as live:
            while wait(_WATCH_S):
                live.update(look(), refresh=True)
    except KeyboardInterrupt:
        return


def _trend(root: Path | None, name: str) -> Any:
    from supervisor.trend import read_trend

    return read_trend(find(root, name))


def _all_facts(
    root: Path | None, slurm: Any, watched: dict[str, Any] | None = None, lang: str = "en"
) -> tuple[list[dict[str, Any]], Any, Any]:
    """One row a run; a run that cannot be read has a row that says so."""
    from supervisor.adapters.leadership import current_holder
    from supervisor.choose import root_of, runs_under

    place = root_of(root)
    holder = current_holder(place)
    rows = []
    for run in runs_under(place):
        try:
            facts = facts_of(read_of(run, time.time(), slurm, watched), lang, seen=holder is None)
            rows.append(
                {key: value for key, value in facts.items() if key not in {"version", "attempts", "ranks"}}
            )
        except (OSError, ValueError) as error:
            rows.append({"run": run.run_id, "state": "unknown", "reason": " ".join(str(error).split())})
    return rows, place.path, holder
