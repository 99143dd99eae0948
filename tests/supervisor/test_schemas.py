"""Every command that prints facts for programs has a schema, and some test holds its output against each schema."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest
import typer

from ciuic import application

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]
SCHEMAS = {
    path.stem: json.loads(path.read_text()) for path in (ROOT / "supervisor" / "schemas").glob("*.json")
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All of the command line that take --json, as they are typed."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(("ciuic", *path))


WITH_JSON = tuple(commands(typer.main.get_command(application())))


def of(schema: dict) -> str:
    """The command whose output it describes: the small words with which its title begins."""
    return re.match(r"ciuic(?: [a-z][a-z-]*)+", schema["title"])[0]


@pytest.mark.parametrize("command", WITH_JSON)
def test_what_a_command_prints_for_programs_has_a_schema(command: str) -> None:
    assert command in map(of, SCHEMAS.values())


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_sound_belongs_to_a_command_and_is_used_by_a_test(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert of(SCHEMAS[name]) in WITH_JSON
    assert SCHEMAS[name]["additionalProperties"] is False, "a field that nobody described would go unseen"
    assert any(f'check("{name}"' in path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_the_command_line_is_seen_whole() -> None:
    assert {"ciuic status", "ciuic bench pairs", "ciuic trainer prepare-data"} <= set(WITH_JSON)
