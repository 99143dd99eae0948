"""`ciuic explain`: it looks, and changes nothing."""

import shlex
import time

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
    from supervisor.telling import coming, for_people, meaning
    from supervisor.words import command_name, text

    now = time.time()
    slurm = patience()
    reading = read(root, run, now, slurm)
    words = language(lang)
    tell_silence(slurm, words)
    lines = story(reading.events, "en" if as_json else words)  # what machines read stays English
    actions = would_come(reading, now)
    next_steps = coming(actions, "en" if as_json else words, recorded(reading, now))
    if as_json:
        verdict = {
            "kind": reading.verdict.kind,
            "reason": reading.verdict.reason,
            "cause": reading.verdict.cause,
        }
        out({"version": 1, "run": reading.run.run_id, "story": lines, "verdict": verdict, "next": next_steps})
        return
    for line in (*(text("damaged", words, what=what) for what in reading.history.damaged), *lines):
        typer.echo(line)
    for line in queue_lines(
        facts_of(reading, words, seen=unwatched_s(root, reading, now) is not None), words
    ):
        typer.echo(line)
    said = meaning(reading.history, reading.observation, reading.verdict, words)
    typer.echo(text("now", words, text=one_line(said, _SENTENCE_BYTES)))
    key = for_people(reading.history, reading.observation)
    nothing = text(key, words, ciuic=command_name(), run=reading.run.run_id)
    what = one_line("; ".join(next_steps), _SENTENCE_BYTES) or nothing
    if any(not isinstance(item, Wait) for item in actions) and unwatched_s(root, reading, now) is not None:
        place = shlex.quote(str(root_of(root).path))
        what = text("once-supervised", words, what=what, ciuic=command_name(), root=place)
    typer.echo(text("next", words, text=what))
