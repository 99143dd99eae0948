"""From JSON back to an observation: a verdict in the journal can be judged again, a scenario can be read."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from contract.states import Phase
from supervisor.core.observation import Observation


def observation_from(value: Mapping[str, Any]) -> Observation:
    """The observation in this mapping. Keys that it does not know are skipped, missing ones get their defaults.

    Raises:
        ValueError: a value is none of those that its field takes.
    """
    found = _build(Observation, value)
    assert isinstance(found, Observation)
    return found


def _build(kind: Any, value: Any) -> Any:
    """A value of this annotated type."""
    if get_origin(kind) in {Union, UnionType}:
        return _optional(kind, value)
    if get_origin(kind) is tuple:
        return tuple(_build(get_args(kind)[0], item) for item in value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        known = {item.name for item in fields(kind)} & set(value)
        return kind(**{name: _field(hints[name], value[name]) for name in known})  # type: ignore[operator]
    if kind is Phase:
        return Phase[value.upper()] if isinstance(value, str) else Phase.of(value)
    if isinstance(kind, type) and kind not in {str, int, float, bool}:
        return kind(value)  # a closed word
    return dict(value) if isinstance(value, Mapping) else value


def _field(kind: Any, value: Any) -> Any:
    if value is None and kind is float:
        return math.nan  # JSON has no NaN
    return _build(kind, value)


def _optional(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    return _build(next(item for item in get_args(kind) if item is not type(None)), value)
