"""`ciuic explain`: it looks, and changes nothing."""

import shlex
import time
from typing import Any

import typer

from contract.options import Lang
from supervisor.commands_looking import (
    Json,
    Name,
    Where,
    facts_of,
    out,
    patience,
    read,
    tell_silence,
    unwatched_s,
)

_SENTENCE_BYTES = 4000


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
    slurm = patience()
    reading = read(root, run, now, slurm)
    words = language(lang)
    tell_silence(slurm, words)
    lines = story(reading.events, "en" if as_json else words)  # what machines read stays English
    actions = would_come(reading, now)
    coming = _coming(actions, "en" if as_json else words, recorded(reading, now))
    if as_json:
        verdict = {
            "kind": reading.verdict.kind,
            "reason": reading.verdict.reason,
            "cause": reading.verdict.cause,
        }
        out({"version": 1, "run": reading.run.run_id, "story": lines, "verdict": verdict, "next": coming})
        return
    for line in (*(text("damaged", words, what=what) for what in reading.history.damaged), *lines):
        typer.echo(line)
    for line in queue_lines(
        facts_of(reading, words, seen=unwatched_s(root, reading, now) is not None), words
    ):
        typer.echo(line)
    typer.echo(text("now", words, text=one_line(_now(reading, words), _SENTENCE_BYTES)))
    nothing = text(_for_people(reading), words, ciuic=command_name(), run=reading.run.run_id)
    what = one_line("; ".join(coming), _SENTENCE_BYTES) or nothing
    if any(not isinstance(item, Wait) for item in actions) and unwatched_s(root, reading, now) is not None:
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
