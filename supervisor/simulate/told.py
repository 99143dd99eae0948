"""The scenario that a command line tells: a preset, a configuration, options, each over the one before."""

import csv
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from contract.config import ConfigError, load
from contract.plain import plainly, required
from supervisor.simulate.presets import Preset, presets
from supervisor.simulate.scenario import Arrival, Kind, Scenario

POLICY = ("supervisor", "monitor", "checkpoint", "job")
_FROM_CONFIG = {"supervisor", "monitor", "checkpoint"}


class ScenarioError(ValueError):
    """The scenario cannot be simulated; the text names every problem."""

    exit_code = 2


class RunConfigError(ScenarioError):
    """The run's configuration cannot be used."""

    exit_code = 78


def find_preset(name: str) -> Preset:
    """The preset with this name.

    Raises:
        ScenarioError: there is none; the known ones are named.
    """
    known = presets()
    if name not in known:
        raise ScenarioError(f"unknown preset {name!r}; known: {', '.join(known)}")
    return known[name]


def scenario_of(
    base: Mapping[str, Any], config: Path | None, options: Mapping[str, Any], assignments: Sequence[str]
) -> Scenario:
    """The scenario, or every problem with it.

    Raises:
        ScenarioError: unknown keys, impossible numbers, or a configuration that cannot be read.
    """
    value = {**base, "policy": {name: dict(section) for name, section in base.get("policy", {}).items()}}
    if config is not None:
        _merge(value, _of_config(config))
    _merge(value, options)
    for item in assignments:
        _assign(value, item)
    hang = value.pop("hang_share", None)
    try:
        scenario = Scenario.model_validate(value)
        if hang is not None:
            scenario = scenario.model_copy(update={"kinds": with_hangs(scenario.kinds, hang)})
        _ = scenario.config  # its policy must be one that a run could have
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, item['loc']))}: {required(item)}" for item in error.errors(include_url=False)
        ]
        raise ScenarioError("; ".join(lines)) from error
    if problems := scenario.contradictions():
        raise ScenarioError("; ".join(problems))
    return scenario


def with_hangs(kinds: Mapping[Kind, float], share: float) -> dict[Kind, float]:
    """The same kinds with this share of hangs, the others in their proportions.

    Raises:
        ScenarioError: the share is none, or nothing else is there to keep it company.
    """
    others: dict[Kind, float] = {kind: weight for kind, weight in kinds.items() if kind is not Kind.HANG}
    total = sum(others.values())
    if not 0 <= share <= 1 or (share < 1 and not total):
        raise ScenarioError(f"hang share {share}: a share between 0 and 1, beside another kind of fault")
    scaled: dict[Kind, float] = (
        {kind: weight / total * (1 - share) for kind, weight in others.items()} if share < 1 else {}
    )
    return scaled | {Kind.HANG: share}


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """Faults from a file: CSV lines `seconds[,kind]`, or a JSON list of numbers or of {"at_s", "kind"}.

    Raises:
        ScenarioError: it cannot be read; the line is named.
    """
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            rows = [item if isinstance(item, dict) else {"at_s": item} for item in json.loads(text)]
        else:
            rows = [
                _row(line) for line in csv.reader(text.splitlines()) if line and not line[0].startswith("#")
            ]
    except (OSError, ValueError, TypeError) as error:
        said = plainly(error)
        raise ScenarioError(said if isinstance(error, OSError) else f"{path}: {said}") from error
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append(Arrival.model_validate(row))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ScenarioError(
                f"{path}, entry {number}: {'.'.join(map(str, first['loc']))}: {required(first)}"
            ) from error
    if not found:
        raise ScenarioError(f"{path}: no fault in it")
    return tuple(found)


def _row(line: list[str]) -> dict[str, str]:
    return dict(zip(("at_s", "kind"), (item.strip() for item in line if item.strip()), strict=False))


def _of_config(path: Path) -> dict[str, Any]:
    try:
        config = load(path)
    except ConfigError as error:
        raise RunConfigError(str(error)) from error
    policy: dict[str, Any] = {name: getattr(config, name).model_dump() for name in _FROM_CONFIG}
    policy["job"] = {
        "time_limit_min": config.job.time_limit_min,
        "signal_before_limit_s": config.job.signal_before_limit_s,
    }
    found: dict[str, Any] = {"nodes": config.job.nodes, "spares": config.job.spare_nodes, "policy": policy}
    if config.job.gpus_per_node:
        found["gpus_per_node"] = config.job.gpus_per_node
    return {**found, "interval": "config"}


def _assign(value: dict[str, Any], item: str) -> None:
    """`key=value`, `detect.hang=600`, or a key of run.toml's sections: `supervisor.max_failures=20`."""
    key, equals, text = item.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ScenarioError(f"--set {item}: write it as key=value")
    try:
        new = tomllib.loads(f"v = {text.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        new = text.strip()
    if names[0] in POLICY:
        names = ["policy", *names]
    for name in reversed(names):
        new = {name: new}
    _merge(value, new)


def _merge(value: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Tables are merged, everything else is replaced."""
    for name, item in more.items():
        known = value.get(name)
        if isinstance(item, dict) and isinstance(known, dict):
            value[name] = dict(known)
            _merge(value[name], item)
        else:
            value[name] = item
