"""Which root and which run a command means."""

import difflib
import os
from pathlib import Path
from typing import NoReturn

import typer

from contract.language import spoken
from contract.layout import RUN_ID, Root, RunDir


class NoSuchRunError(LookupError):
    """The message names what was asked for and what there is."""


def root_of(option: Path | None) -> Root:
    """`--root`, else CIUIC_ROOT, else `runs` here. It need not exist yet.

    Raises:
        typer.Exit: it can hold no runs, or they cannot be read (2, and a line that says so).
    """
    place = (option or Path(os.environ.get("CIUIC_ROOT") or "runs")).expanduser()
    try:
        found = place.resolve()
        with os.scandir(found):
            pass
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        _no_root(place, "is no directory")
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        _no_root(place, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return Root(path=found)


def _no_root(place: Path, what: str) -> NoReturn:
    typer.echo(
        f"{place} {what}; --root (else CIUIC_ROOT, else ./runs) is the directory of the runs", err=True
    )
    raise typer.Exit(2)


def find_run(root: Root, name: str) -> RunDir:
    """The run with this id, or whose id alone begins like this.

    Raises:
        NoSuchRunError: none, or several.
    """
    known = {run.run_id: run for run in runs_under(root)}
    if name in known:
        return known[name]
    begun = [run_id for run_id in known if run_id.startswith(name)]
    if name and len(begun) == 1:
        return known[begun[0]]
    if not known:
        raise NoSuchRunError(
            f"没有任务 {name}：{root.path} 下没有任何任务（用 --root 或 CIUIC_ROOT 指定目录）"
            if spoken() == "zh"
            else f"no run {name}: there are no runs under {root.path} (--root or CIUIC_ROOT says where)"
        )
    if begun:
        which = ", ".join(sorted(begun))
        raise NoSuchRunError(
            f"{name} 可能是其中任何一个：{which}" if spoken() == "zh" else f"{name} may be any of: {which}"
        )
    close = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)[-3:])
    raise NoSuchRunError(
        f"{root.path} 下没有任务 {name}；相近的：{close}"
        if spoken() == "zh"
        else f"no run {name} under {root.path}; nearest: {close}"
    )


def runs_under(root: Root) -> list[RunDir]:
    """Every directory that looks like a run's, by name."""
    try:
        with os.scandir(root.path) as entries:
            names = sorted(entry.name for entry in entries if RUN_ID.match(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []
    return [run for name in names if (run := root.run(name)).config.exists()]
