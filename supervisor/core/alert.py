"""One alert: its key, and its texts cut to what a robot takes.

`key` folds: as long as it is open in the history, the same thing is not told again. Recovery opens all keys.
"""

from contract.events import AlertQueued
from contract.history import History
from supervisor.core.text import cut, one_line

LINE_BYTES = 800  # so that the last line, where the evidence is, still fits
_TEXT_BYTES = 1900  # the robot takes 2,048; a mark and a note may be added on the way out
LANGUAGES = ("zh", "en")


def alert(
    history: History,
    *,
    key: str,
    place: str,
    severity: str,
    titles: tuple[str, str],
    lines: tuple[list[str], list[str]],
    answers: str = "",
    ends: str = "",
) -> AlertQueued:
    """The id is made of what happened, so that a second try after a crash is the same alert."""
    run = history.run or "run"
    heads = {"zh": f"【{run}】{titles[0]}", "en": f"[{run}] {titles[1]}"}
    texts = {
        language: cut(
            "\n".join([heads[language], *(cut(line, LINE_BYTES) for line in lines[number])]), _TEXT_BYTES
        )
        for number, language in enumerate(LANGUAGES)
    }
    identity = f"{key.replace(':', '-')}-{place}"
    return AlertQueued(
        id=identity,
        key=key,
        severity=severity,
        answers=answers,
        ends=ends,
        title={language: one_line(heads[language], 160) for language in LANGUAGES},
        text=texts,
    )
