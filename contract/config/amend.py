"""Settings of a run that exists, changed between two attempts. Pure but for looking whether the data is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from contract.config.load import ConfigError, Problem, contradictions, override, problem_of
from contract.config.whole import RunConfig

_ORDER = "it decides which data comes next, and steps would lose or repeat samples"
_IDENTITY = "it is what this run is; submit a new one"
FIXED: Mapping[str, str] = {
    "run.name": _IDENTITY,
    "run.root": _IDENTITY,
    "run.seed": _ORDER,
    "job.executor": _IDENTITY,
    "job.command": _IDENTITY,
    "data.path": _ORDER,
    "data.corpora": _ORDER,
    "batch.sequence_length": _ORDER,
    "model.preset": "the shape stands in the other keys of [model]",
    "model.hf_config": "the run has started from it already",
    "model.init_from": "the run has started from it already",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value that changes."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.before!r} → {self.after!r}"


def amended(
    config: RunConfig, overrides: Sequence[str], *, source: str
) -> tuple[RunConfig, tuple[Setting, ...]]:
    """The run's configuration with `section.key=value` overrides, and what they change; unchanged ones are left out.

    Raises:
        ConfigError: with every problem: a key that cannot change any more, or a configuration that cannot be used.
    """
    before = config.model_dump(mode="json")
    value = config.model_dump(mode="json")
    problems = [problem for item in overrides if (problem := override(value, item))]
    changed = _settings(before, value)
    problems += [
        Problem(where=item.key, what=f"cannot change any more: {FIXED[item.key]}")
        for item in changed
        if item.key in FIXED
    ]
    if problems:
        raise ConfigError(source, problems)
    try:
        found = RunConfig.model_validate(value)
    except ValidationError as error:
        raise ConfigError(
            source, [problem_of(item, value) for item in error.errors(include_url=False)]
        ) from error
    if problems := contradictions(found, frozenset()):
        raise ConfigError(source, problems)
    return found, tuple(_settings(before, found.model_dump(mode="json")))


def _settings(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> list[Setting]:
    found: list[Setting] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _settings(old, new, f"{at}{key}.")
        elif old != new:
            found.append(Setting(key=f"{at}{key}", before=old, after=new))
    return found
