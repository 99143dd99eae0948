"""What the commands that look have in common: their options, one look at a run, its facts in the reader's language."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

Name = Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")]
Where = Annotated[
    Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
]
Json = Annotated[bool, typer.Option("--json", help="Facts for programs.")]


def patience() -> Any:
    """For all questions of this command to Slurm, whatever the number of runs."""
    from slurm.patience import Patience
    from supervisor.reading import LOOK_S

    return Patience(LOOK_S)


def tell_silence(slurm: Any, lang: str) -> None:
    from supervisor.core.text import one_line
    from supervisor.words import text

    if slurm.silent:
        typer.echo(text("slurm-silent", lang, why=one_line(slurm.silent, 200)), err=True)


def read(root: Path | None, name: str, now: float, slurm: Any, watched: dict[str, Any] | None = None) -> Any:
    try:
        return read_of(find(root, name), now, slurm, watched)
    except (OSError, ValueError) as error:
        fail(name, error)


def read_of(run: Any, now: float, slurm: Any, watched: dict[str, Any] | None) -> Any:
    """One look, without `slurm` at files only; `watched` keeps the observers."""
    from supervisor.adapters.rundir import Observer
    from supervisor.reading import read as look

    observer = None if watched is None else watched.setdefault(run.run_id, Observer(run))
    return look(run, now, time.monotonic(), slurm=slurm, observer=observer)


def find(root: Path | None, name: str) -> Any:
    from supervisor.choose import NoSuchRunError, find_run, root_of

    try:
        return find_run(root_of(root), name)
    except NoSuchRunError as error:
        fail("ciuic", error)


def unwatched_s(root: Path | None, reading: Any, now: float) -> float | None:
    """How old the state is that nobody keeps true; None when somebody does, or it is final."""
    from supervisor.adapters.leadership import current_holder
    from supervisor.choose import root_of

    if reading.history.state.final or current_holder(root_of(root)) is not None:
        return None
    since: float = reading.history.state_at
    return max(0.0, now - since)


def facts_of(reading: Any, lang: str = "en", *, seen: bool) -> dict[str, Any]:
    """The facts for programs; for a Chinese reader with our reasons in Chinese.

    `seen`: nobody keeps the recorded state true, so that the state is what this look shows.
    """
    from supervisor.core.status import status as facts_for_programs
    from supervisor.mail import held_back
    from supervisor.outlook import as_seen

    now = time.time()
    if seen or reading.config.supervisor.observe_only:
        reading = as_seen(reading, now)
    if seen:  # what a supervisor could not do is no news once it is gone
        reading = replace(reading, history=replace(reading.history, queue_silent=None))
    facts = facts_for_programs(reading.history, reading.observation, reading.verdict, now)
    if lang == "zh":
        facts = _in_chinese(facts, reading)
    waits = held_back(reading.history, reading.config.alerts.receivers, now)
    return {
        **facts,
        "alerts": {
            **facts["alerts"],
            "problem": _said(reading.alert_problem, lang),
            "held_back": {"reason": _said(waits.reason, lang), "until": waits.until} if waits else None,
        },
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


def wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def fail(what: str, error: Exception) -> NoReturn:
    from contract.language import spoken
    from contract.plain import plainly

    typer.echo(f"{what}: {plainly(error, spoken())}", err=True)
    raise typer.Exit(1) from None


def out(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
