"""`ciuic status`, `explain`, `logs`, `checkpoints`: they look, and change nothing."""

import json
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from contract.options import Lang

Name = Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")]
MaybeName = Annotated[
    str, typer.Argument(metavar="[RUN]", help="Run id, or the beginning of one; none: all runs.")
]
Where = Annotated[
    Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
]
Json = Annotated[bool, typer.Option("--json", help="Facts for programs.")]


_LOOK_S = 0.5  # between two looks at the logs
_FIRST_LINES = 20  # of a followed log
_WATCH_S = 2.0
_SENTENCE_BYTES = 4000


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
    slurm = _patience()
    if run:
        now = time.time()
        reading = _read(root, run, now, slurm)
        if as_json:
            _out(_facts_of(reading, seen=_unwatched_s(root, reading, now) is not None))
        else:
            age = _unwatched_s(root, reading, now)
            show_run(
                _facts_of(reading, language(lang), seen=age is not None),
                _trend(root, run),
                language(lang),
                age,
            )
        _tell_silence(slurm, language(lang))
        return
    rows, place, holder = _all_facts(root, slurm, lang="en" if as_json else language(lang))
    if as_json:
        _out({"version": 1, "runs": rows})
    else:
        show_runs(rows, place, holder, language(lang))
    _tell_silence(slurm, language(lang))


def _patience() -> Any:
    """For all questions of this command to Slurm, whatever the number of runs."""
    from slurm.patience import Patience
    from supervisor.reading import LOOK_S

    return Patience(LOOK_S)


def _tell_silence(slurm: Any, lang: str) -> None:
    from supervisor.core.text import one_line
    from supervisor.words import text

    if slurm.silent:
        typer.echo(text("slurm-silent", lang, why=one_line(slurm.silent, 200)), err=True)


def explain(run: Name, root: Where = None, as_json: Json = False, lang: Lang = "") -> None:
    """The run's story with the reasons, what it means now, and what comes next."""
    from contract.language import language
    from supervisor.choose import root_of
    from supervisor.core.actions import Wait
    from supervisor.core.story import story
    from supervisor.core.text import one_line
    from supervisor.outlook import coming as would_come
    from supervisor.outlook import recorded
    from supervisor.render import queue_lines
    from supervisor.words import command_name, text

    now = time.time()
    slurm = _patience()
    reading = _read(root, run, now, slurm)
    words = language(lang)
    _tell_silence(slurm, words)
    lines = story(reading.events, "en" if as_json else words)  # what machines read stays English
    actions = would_come(reading, now)
    coming = _coming(actions, "en" if as_json else words, recorded(reading, now))
    if as_json:
        verdict = {
            "kind": reading.verdict.kind,
            "reason": reading.verdict.reason,
            "cause": reading.verdict.cause,
        }
        _out({"version": 1, "run": reading.run.run_id, "story": lines, "verdict": verdict, "next": coming})
        return
    for line in (*(text("damaged", words, what=what) for what in reading.history.damaged), *lines):
        typer.echo(line)
    for line in queue_lines(
        _facts_of(reading, words, seen=_unwatched_s(root, reading, now) is not None), words
    ):
        typer.echo(line)
    typer.echo(text("now", words, text=one_line(_now(reading, words), _SENTENCE_BYTES)))
    nothing = text(_for_people(reading), words, ciuic=command_name(), run=reading.run.run_id)
    what = one_line("; ".join(coming), _SENTENCE_BYTES) or nothing
    if any(not isinstance(item, Wait) for item in actions) and _unwatched_s(root, reading, now) is not None:
        place = shlex.quote(str(root_of(root).path))
        what = text("once-supervised", words, what=what, ciuic=command_name(), root=place)
    typer.echo(text("next", words, text=what))


def _for_people(reading: Any) -> str:
    """Which text says what a person can do where nothing is done by itself."""
    from contract.states import JobState, RunState
    from supervisor.core.job_words import never_clears

    job = reading.observation.job
    if reading.history.state is RunState.FAILED:
        return "fix"
    if job.state is JobState.HELD and not reading.history.state.final:
        return "never-starts" if never_clears(job.reason) else "held"
    return "nothing"


def _now(reading: Any, lang: str) -> str:
    """What it means now, in the reader's language."""
    from supervisor.core.failure_words import sentence
    from supervisor.core.phrases import STATES, VERDICTS, word
    from supervisor.core.reasons import chinese, failures_of
    from supervisor.record import judgement

    history, verdict = reading.history, reading.verdict
    final = history.state.final
    if lang != "zh":
        said = (history.state.value, history.reason) if final else (verdict.kind.value, verdict.reason)
        return ": ".join(part for part in said if part)
    if final:
        said = (word(STATES, history.state, lang), chinese(history.reason, failures_of(history)))
    elif verdict.failed or verdict.told:
        said = (word(VERDICTS, verdict.kind, lang), sentence(judgement(reading.observation, verdict), lang))
    else:
        said = (word(VERDICTS, verdict.kind, lang), chinese(verdict.reason, failures_of(history)))
    return "：".join(part for part in said if part)


def _coming(actions: Any, lang: str, history: Any) -> list[str]:
    """What would be done, each with its reason."""
    from supervisor.core.reasons import chinese, failures_of
    from supervisor.words import text

    failures = failures_of(history)
    found = []
    for action in actions:
        name, reason = text(type(action).__name__, lang), getattr(action, "reason", "")
        said = chinese(reason, failures) if lang == "zh" else reason
        found.append(f"{name}{'：' if lang == 'zh' else ': '}{said}" if said else name)
    return found


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
    place = _find(root, run)
    try:
        lines = (
            follow(place, wanted, tail or _FIRST_LINES, lambda: _wait(_LOOK_S))
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
        _fail("logs", error)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def checkpoints(
    run: Name,
    root: Where = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything and compare the checksums.")
    ] = False,
    as_json: Json = False,
    lang: Lang = "",
) -> None:
    """All checkpoints with size and age, here and at the other places, and of those that do not count the reason.

    --verify reads the copies too. Exit 1 if it finds a damaged one, or a place cannot be read.
    """
    from contract.language import language
    from supervisor.copies.listing import copy_rows
    from supervisor.render import show_checkpoints, show_unreadable

    found = _find(root, run)
    now = time.time()
    rows = _checkpoint_rows(found, deep=verify, now=now)
    copies, unreadable = copy_rows(found, deep=verify, now=now)
    rows += copies
    if as_json:
        _out({"version": 1, "run": found.run_id, "checkpoints": rows, "unreadable": unreadable})
    else:
        show_checkpoints(rows, language(lang))
        show_unreadable(unreadable, language(lang))
    if verify and (unreadable or any(row["complete"] and not row["valid"] for row in rows)):
        raise typer.Exit(1)


def _checkpoint_rows(run: Any, *, deep: bool, now: float) -> list[dict[str, Any]]:
    """One row a directory. Size and age of one that is not complete are those of what is there of it."""
    from contract.manifest import directories, examine, in_lineage, read_resumes

    resumes = read_resumes(run)
    rows = []
    for item in (examine(directory, deep=deep) for directory in directories(run)):
        current = in_lineage(item.step, (item.attempt, item.generation), resumes)
        reason = item.reason or ("" if current else "rolled back: a later generation resumed before it")
        found = item.manifest
        size, changed = (found.size, found.saved_at) if found and found.saved_at else _on_disk(item.path)
        rows.append(
            {
                "where": "local",
                "step": item.step,
                "attempt": item.attempt,
                "generation": item.generation,
                "path": str(item.path),
                "complete": found is not None,
                "valid": item.valid and current,
                "reason": reason,
                "bytes": size,
                "age_s": round(max(0.0, now - changed), 1),
                "world_size": found.world_size if found else None,
                "val_loss": found.val_loss if found else None,
            }
        )
    return rows


def _on_disk(directory: Path) -> tuple[int, float]:
    """(bytes in files, when something last changed there, UTC seconds)."""
    size, changed = 0, 0.0
    for path in (directory, *directory.rglob("*")):
        try:
            status = path.stat()
        except OSError:  # removed meanwhile
            continue
        size += status.st_size if path.is_file() else 0
        changed = max(changed, status.st_mtime)
    return size, changed


def _unwatched_s(root: Path | None, reading: Any, now: float) -> float | None:
    """How old the state is that nobody keeps true; None when somebody does, or it is final."""
    from supervisor.adapters.leadership import current_holder
    from supervisor.choose import root_of

    if reading.history.state.final or current_holder(root_of(root)) is not None:
        return None
    since: float = reading.history.state_at
    return max(0.0, now - since)


def _watch(root: Path | None, name: str, lang: str) -> None:
    """The same picture again and again, in place."""
    from rich.live import Live

    from supervisor.render import console_for_live, run_view, runs_view

    seen: dict[str, Any] = {}  # run → its observer: whether a beat moves shows only over time

    def look() -> Any:
        if name:
            now = time.time()
            reading = _read(root, name, now, None, seen)
            age = _unwatched_s(root, reading, now)
            return run_view(_facts_of(reading, lang, seen=age is not None), _trend(root, name), lang, age)
        return runs_view(*_all_facts(root, None, seen, lang), lang)

    try:
        with Live(look(), console=console_for_live(), auto_refresh=False, screen=False) as live:
            while _wait(_WATCH_S):
                live.update(look(), refresh=True)
    except KeyboardInterrupt:
        return


def _trend(root: Path | None, name: str) -> Any:
    from supervisor.trend import read_trend

    return read_trend(_find(root, name))


def _facts_of(reading: Any, lang: str = "en", *, seen: bool) -> dict[str, Any]:
    """The facts for programs; for a Chinese reader with our reasons in Chinese.

    `seen`: nobody keeps the recorded state true, so that the state is what this look shows.
    """
    from supervisor.core.status import status as facts_of
    from supervisor.outlook import as_seen

    now = time.time()
    if seen or reading.config.supervisor.observe_only:
        reading = as_seen(reading, now)
    if seen:  # what a supervisor could not do is no news once it is gone
        reading = replace(reading, history=replace(reading.history, queue_silent=None))
    facts = facts_of(reading.history, reading.observation, reading.verdict, now)
    if lang == "zh":
        facts = _in_chinese(facts, reading)
    return {
        **facts,
        "alerts": {**facts["alerts"], "problem": _said(reading.alert_problem, lang)},
        "observe_only": reading.config.supervisor.observe_only,
    }


def _said(reason: str, lang: str) -> str:
    from supervisor.core.reasons import chinese

    return chinese(reason, {}) if lang == "zh" else reason


def _in_chinese(facts: dict[str, Any], reading: Any) -> dict[str, Any]:
    from supervisor.core.failure_words import sentence
    from supervisor.core.reasons import chinese, failures_of
    from supervisor.record import judgement

    failures = dict(failures_of(reading.history))
    if reading.verdict.failed or reading.verdict.told:
        failures[reading.verdict.reason] = sentence(judgement(reading.observation, reading.verdict), "zh")

    def said(item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "reason": chinese(item["reason"], failures) if item["reason"] else item["reason"]}

    attempts = [
        {**attempt, "generations": [said(one) for one in attempt["generations"]]}
        for attempt in facts["attempts"]
    ]
    return {**said(facts), "attempts": attempts}


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
            facts = _facts_of(_read_of(run, time.time(), slurm, watched), lang, seen=holder is None)
            rows.append(
                {key: value for key, value in facts.items() if key not in {"version", "attempts", "ranks"}}
            )
        except (OSError, ValueError) as error:
            rows.append({"run": run.run_id, "state": "unknown", "reason": " ".join(str(error).split())})
    return rows, place.path, holder


def _read(root: Path | None, name: str, now: float, slurm: Any, watched: dict[str, Any] | None = None) -> Any:
    try:
        return _read_of(_find(root, name), now, slurm, watched)
    except (OSError, ValueError) as error:
        _fail(name, error)


def _read_of(run: Any, now: float, slurm: Any, watched: dict[str, Any] | None) -> Any:
    """One look, without `slurm` at files only; `watched` keeps the observers."""
    from supervisor.adapters.rundir import Observer
    from supervisor.reading import read

    observer = None if watched is None else watched.setdefault(run.run_id, Observer(run))
    return read(run, now, time.monotonic(), slurm=slurm, observer=observer)


def _find(root: Path | None, name: str) -> Any:
    from supervisor.choose import NoSuchRunError, find_run, root_of

    try:
        return find_run(root_of(root), name)
    except NoSuchRunError as error:
        _fail("ciuic", error)


def _fail(what: str, error: Exception) -> NoReturn:
    from contract.language import spoken
    from contract.plain import plainly

    typer.echo(f"{what}: {plainly(error, spoken())}", err=True)
    raise typer.Exit(1) from None


def _out(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
