"""What a checkpoint came from: configuration and code, and what has changed since."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import xxhash

from contract import config as configuration
from contract.config import RunConfig

CONFIG_NAME = "run.toml"  # the resolved configuration, as a file of each checkpoint
_MISSING = "not set"


def config_digest(config: RunConfig) -> str:
    """A hash of the resolved configuration, so that a checkpoint tells what trained it."""
    return str(xxhash.xxh3_64_hexdigest(configuration.dump(config).encode()))


@cache
def code_version() -> str:
    """`0.1.0 xxh3:…`: version of ciuic and a hash of the sources that decide how a run trains."""
    try:
        number = version("ciuic")
    except PackageNotFoundError:
        number = "unknown"
    root = Path(__file__).resolve().parent.parent
    state = xxhash.xxh3_64()
    for path in sorted(path for part in ("contract", "trainer") for path in (root / part).rglob("*.py")):
        state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{number} xxh3:{state.hexdigest()}"


def changes(before: str, now: RunConfig) -> list[str]:
    """`section.key: old → new` for every setting that is not what it was. `before` is the older run.toml.

    Raises:
        ValueError: that is no TOML.
    """
    old, new = dict(_leaves(tomllib.loads(before))), dict(_leaves(tomllib.loads(configuration.dump(now))))
    return [
        f"{key}: {_shown(old, key)} → {_shown(new, key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, _MISSING) != new.get(key, _MISSING)
    ]


def _leaves(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{above}{key}.")
        else:
            yield f"{above}{key}", item


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else _MISSING
