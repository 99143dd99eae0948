"""`ciuic pause`, `resume`, `cancel`, `dump`, `ack`, `silence`: a request to whoever supervises the run, and its outcome."""

import errno
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.language import language, spoken
from contract.options import Lang
from contract.plain import plainly
from contract.states import ExitCode

if TYPE_CHECKING:
    from contract.layout import RunDir

Name = Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")]
Where = Annotated[
    Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
]
Patience = Annotated[float, typer.Option("--wait", help="Seconds to wait for the outcome.")]

WAIT_S = 600.0
DUMP_WAIT_S = 60.0


def pause(run: Name, root: Where = None, wait: Patience = WAIT_S, lang: Lang = "") -> None:
    """Save, give the nodes back, and keep quiet until `resume`."""
    _ask(run, "pause", root, wait, language(lang))


def resume(
    run: Name,
    root: Where = None,
    wait: Patience = WAIT_S,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated."),
    ] = None,
    lang: Lang = "",
) -> None:
    """Go on with a paused, failed or cancelled run, on other nodes or with other settings if --set says so."""
    _ask(run, "resume", root, wait, language(lang), overrides or ())


def cancel(run: Name, root: Where = None, wait: Patience = WAIT_S, lang: Lang = "") -> None:
    """End the run. Its checkpoints stay; only `resume` brings it back."""
    _ask(run, "cancel", root, wait, language(lang))


def dump(run: Name, root: Where = None, wait: Patience = DUMP_WAIT_S, lang: Lang = "") -> None:
    """Keep where every rank stands: stacks, flight recorders, GPU health. Training goes on."""
    _ask(run, "dump", root, wait, language(lang))


def set_hot(
    run: Name,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE…",
            help="log_level, lr_factor, optimizer.gradient_clipping, batch.max_micro_batch_size, "
            "batch.max_accumulation_steps, checkpoint=now or profile=now.",
        ),
    ],
    root: Where = None,
    wait: Patience = DUMP_WAIT_S,
    lang: Lang = "",
) -> None:
    """Change a setting while the run trains: all ranks take it over before the same step. It holds over restarts."""
    _ask(run, "set", root, wait, language(lang), settings)


def ack(run: Name, root: Where = None, wait: Patience = WAIT_S, lang: Lang = "") -> None:
    """Say that you know of the current incident: it is not told again until it is over."""
    _ask(run, "ack", root, wait, language(lang))


def silence(
    run: Name,
    how_long: Annotated[
        str, typer.Argument(metavar="FOR", help="As in 90s, 30m, 2h, 1d (at most 7d); 0 or off ends it.")
    ],
    root: Where = None,
    wait: Patience = WAIT_S,
    lang: Lang = "",
) -> None:
    """Hear nothing of this run for so long; what happens meanwhile is told afterwards in one message."""
    seconds = _seconds(how_long)
    until = time.time() + seconds if seconds else 0.0
    _ask(run, "silence", root, wait, language(lang), until=until)


def _seconds(text: str) -> float:
    """A length of time as people write it.

    Raises:
        typer.BadParameter: it is none, or too long.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip().lower())
    if text.strip().lower() in {"0", "off"}:
        return 0.0
    if not found:
        raise typer.BadParameter(f"{text!r} is no length of time: write 90s, 30m, 2h, 1d, or off")
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]
    if seconds > 7 * 86_400:
        raise typer.BadParameter(f"{text!r} is longer than 7d")
    return seconds


def _ask(
    name: str,
    kind: str,
    root: Path | None,
    wait_s: float,
    lang: str,
    settings: Sequence[str] = (),
    *,
    until: float | None = None,
) -> None:
    from contract.config import ConfigError, read_resolved
    from contract.config.amend import amended
    from contract.hot import checked
    from contract.requests import RequestKind
    from supervisor.choose import NoSuchRunError, find_run, root_of
    from supervisor.core.reasons import chinese
    from supervisor.operate import ask

    place = root_of(root)
    try:
        found = find_run(place, name)

        def say(text: str) -> None:
            typer.echo(chinese(text, {}) if lang == "zh" else text, err=True)

        changes: Sequence[object] = ()
        if kind in {"set", "resume"}:
            _not_completed(found)
        if settings and kind == "set":  # a typing error is told here and now
            checked(settings, read_resolved(found.config))
        elif settings:
            _, changes = amended(read_resolved(found.config), settings, source=found.run_id)
        asked = {
            **({} if until is None else {"until": until}),
            **({"set": list(settings)} if settings else {}),
        }
        outcome = ask(place, found, RequestKind(kind), wait_s=wait_s, say=say, args=asked)
    except ConfigError as error:
        typer.echo(f"{kind}: {error.told(lang)}", err=True)
        raise typer.Exit(ExitCode.CONFIG) from None
    except (NoSuchRunError, OSError, ValueError) as error:
        typer.echo(f"{kind}: {explained(error, place.path)}", err=True)
        raise typer.Exit(1) from None
    for item in changes if outcome.ok else ():
        say(f"{found.run_id}: {item}")
    typer.echo(f"{found.run_id}{'：' if lang == 'zh' else ': '}{outcome.told(lang)}")
    if not outcome.ok:
        raise typer.Exit(1)


def _not_completed(run: "RunDir") -> None:
    """Raises ValueError for a run in which nothing changes any more."""
    from contract.fold import fold
    from contract.journal import JournalReader
    from contract.states import RunState

    if fold(JournalReader(run.journal).new()).state is RunState.COMPLETED:
        raise ValueError(
            "the run is completed, and nothing of it changes any more. To train further, start a new run from its "
            f"weights: `ciuic export {run.run_id}`, then `ciuic submit CONFIG --set model.init_from=DIRECTORY` "
            "(and --set run.steps=N)"
        )


def explained(error: Exception, root: Path) -> str:
    """The error, and on a full file system what to do: the wish itself has to be written there."""
    if not isinstance(error, OSError) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        from supervisor.core.reasons import chinese

        said = plainly(error, spoken())
        return chinese(said, {}) if spoken() == "zh" else said
    return (
        f"{error.strerror}. Nothing was asked for: {root} has no room for the request. Make room (`df -h {root}`, or a "
        "quota), and try again; a Slurm job is ended without it by `scancel JOB` (`ciuic status RUN` names the job)"
    )
