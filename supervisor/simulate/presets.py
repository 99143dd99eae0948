"""Named scenarios with published figures. Data in presets/*.toml, each with its sources and what is assumed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

DEFAULT = "slurm-default"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """`published`: what the source observed, for comparison. `scenario`: keys of Scenario."""

    name: str
    about: str
    sources: tuple[str, ...]
    assumed: tuple[str, ...]
    published: str
    scenario: Mapping[str, Any]


def presets() -> dict[str, Preset]:
    """All presets by name."""
    folder = files("supervisor.simulate") / "presets"
    found = (item for item in folder.iterdir() if item.name.endswith(".toml"))
    return dict(
        sorted(
            (item.name.removesuffix(".toml"), _preset(item.name, item.read_text("utf-8"))) for item in found
        )
    )


def _preset(file: str, text: str) -> Preset:
    value = tomllib.loads(text)
    return Preset(
        name=file.removesuffix(".toml"),
        about=value["about"],
        sources=tuple(value["sources"]),
        assumed=tuple(value.get("assumed", ())),
        published=value.get("published", ""),
        scenario=value["scenario"],
    )
