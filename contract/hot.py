"""What can change while a run trains: the safe settings, taken over by all ranks at one step boundary.

The journal keeps them (`HotSet`), control.json and the page of rank 0 carry them. They hold over restarts, pauses and
resumes, on top of run.toml, until they are set again or until `ciuic resume RUN --set` names the same key: the newest
word counts.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from contract.config import RunConfig


class Hot(StrEnum):
    """The settings. Those with a section stand in for the one of the same name in run.toml."""

    LOG_LEVEL = "log_level"
    LR_FACTOR = "lr_factor"
    CLIPPING = "optimizer.gradient_clipping"
    MAX_MICRO_BATCH = "batch.max_micro_batch_size"
    MAX_ACCUMULATION = "batch.max_accumulation_steps"


ONCE = ("checkpoint", "profile")  # not settings: `checkpoint=now` is carried out once
USUAL = "usual"
LEVELS = ("debug", "info", "warning", "error", USUAL)  # usual: info for rank 0, warning for the others
_MOST_LR = 10.0


def checked(words: Sequence[str], config: RunConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(settings with their values, what is wanted once and now) of these `key=value`.

    Raises:
        ValueError: one of them cannot be changed while the run trains, and why.
    """
    values: dict[str, Any] = {}
    once: list[str] = []
    for word in words:
        key, separator, text = (part.strip() for part in word.partition("="))
        if not separator:
            raise ValueError(f"{word!r}: write it as key=value")
        if key in ONCE:
            if text != "now":
                raise ValueError(f"{word}: only {key}=now")
            once.append(key)
        else:
            values[key] = _value(key, text, config)
    if not values and not once:
        raise ValueError(f"nothing to set; {_possible()}")
    return values, tuple(dict.fromkeys(once))


def _value(key: str, text: str, config: RunConfig) -> Any:
    try:
        known = Hot(key)
    except ValueError:
        if unknown := _unknown(key, config):
            raise ValueError(unknown) from None
        raise ValueError(
            f"{key} does not change while the run trains ({_possible()}); "
            f"between two jobs: ciuic pause RUN, then ciuic resume RUN --set {key}=VALUE"
        ) from None
    match known:
        case Hot.LOG_LEVEL:
            return _level(key, text, config.job.world_size)
        case Hot.LR_FACTOR:
            return _number(key, text, least=0.0, most=_MOST_LR)
        case Hot.CLIPPING:
            return _number(key, text, least=0.0, most=1e9)
        case Hot.MAX_MICRO_BATCH | Hot.MAX_ACCUMULATION:
            return _bound(known, text, config)


def _unknown(key: str, config: RunConfig) -> str:
    """What is wrong with a key that no recipe has either; "" when it is a setting of the run."""
    known = [*Hot, *ONCE, *_keys(config.model_dump(mode="json"))]
    if any(key == name or key.startswith(f"{name}.") for name in known):  # tables of one's own have any key
        return ""
    last = key.rpartition(".")[2]
    close = [name for name in known if name.rpartition(".")[2] == last]
    close = close or difflib.get_close_matches(key, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{key}: unknown key{hint} ({_possible()})"


def _keys(value: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """The settings that have a value of their own, as section.key."""
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _keys(item, f"{at}{name}.")
        else:
            yield f"{at}{name}"


def _level(key: str, text: str, ranks: int) -> str:
    """A level for all ranks, or `debug:0,3` for some."""
    level, colon, some = text.partition(":")
    if level not in LEVELS or (level == USUAL and colon):
        raise ValueError(f"{key}={text}: one of {', '.join(LEVELS)}, for some ranks as in debug:0,3")
    wanted = [part.strip() for part in some.split(",")] if colon else []
    if any(not part.isdecimal() or int(part) >= ranks for part in wanted):
        raise ValueError(f"{key}={text}: ranks are numbers from 0 to {ranks - 1}, as in {level}:0,3")
    return text


def level_of(word: str, rank: int) -> str:
    """The level that this value of `log_level` gives a rank; "": the one that it starts with."""
    level, colon, some = word.partition(":")
    here = not colon or str(rank) in {part.strip() for part in some.split(",")}
    return level if here and level != USUAL else ""


def _bound(key: Hot, text: str, config: RunConfig) -> int:
    if config.batch.adaptive == "off":
        raise ValueError(f'{key}: nobody changes the batch of this run (batch.adaptive = "off")')
    least = config.batch.micro_batch_size if key is Hot.MAX_MICRO_BATCH else 1
    if not text.isdecimal() or (int(text) < least and not (key is Hot.MAX_MICRO_BATCH and int(text) == 0)):
        raise ValueError(f"{key}={text}: a whole number of at least {least}")
    return int(text)


def _number(key: str, text: str, *, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{key}={text}: not a number") from None
    if not least <= value <= most:
        raise ValueError(f"{key}={text}: from {least:g} to {most:g}")
    return value


def _possible() -> str:
    return f"possible are {', '.join(Hot)}, checkpoint=now and profile=now"


def told(values: Mapping[str, Any]) -> str:
    """The settings in one line."""
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
