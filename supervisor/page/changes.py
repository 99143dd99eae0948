"""What has changed between two pictures, as a JSON merge patch (RFC 7386): objects in depth, everything else whole."""

from collections.abc import Mapping
from typing import Any

_NOTHING: Mapping[str, Any] = {}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `new` of `old`; null removes a key, so that a key whose value is null is not there."""
    patch: dict[str, Any] = {key: None for key in old if new.get(key) is None and old[key] is not None}
    for key, value in new.items():
        before = old.get(key)
        if before is value or value is None:
            continue
        if isinstance(value, dict):
            known = before if isinstance(before, dict) else None
            inner = changes(known or _NOTHING, value)
            if inner or known is None:
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch
