"""The documents stay true: links lead somewhere, commands and settings exist, both languages say the same."""

import re
import tomllib
from pathlib import Path

import pytest
import typer

from ciuic import application
from contract.config import RunConfig
from contract.states import Cause, VerdictKind

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted(DOCS.rglob("*.md"))]
PAIRS = [
    (ROOT / "README.md", ROOT / "README.zh-CN.md"),
    *((path, DOCS / "zh" / path.name) for path in sorted((DOCS / "en").glob("*.md"))),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

COMMAND = re.compile(r"(?:`|^|bin/)ciuic ([a-z][a-z-]*)([^`\n#]*)", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", BLOCK.sub("", page.read_text()))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    known = typer.main.get_command(application()).commands
    wrong = []
    for first, rest in COMMAND.findall(page.read_text()):
        command = known.get(first)
        if getattr(command, "commands", None) and (second := re.match(r" ([a-z-]+)", rest)):
            command = command.commands.get(second[1])
        options = {option for item in getattr(command, "params", ()) for option in item.opts}
        if command is None or set(re.findall(r"(?<![\w-])--[a-z-]+", rest)) - options - {"--help"}:
            wrong.append(f"ciuic {first}{rest}")
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_in_snippets_are_accepted(page: Path) -> None:
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "toml":
            RunConfig.model_validate(tomllib.loads(text))


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=lambda path: path.name)
def test_both_languages_have_the_same_shape(english: Path, chinese: Path) -> None:
    one, other = english.read_text(), chinese.read_text()
    assert _shape(one) == _shape(other)
    assert _code(one) == _code(other)


def _shape(text: str) -> list[str]:
    """Headings and rows of tables, in order."""
    lines = BLOCK.sub("", text).splitlines()
    return [found[0] for line in lines if (found := re.match(r"#+(?= )|\|", line))]


def _code(text: str) -> list[str]:
    """Code without what a reader reads: comments, and drawings."""
    blocks = [body for kind, body in BLOCK.findall(text) if "│" not in body]
    return [re.sub(r"\s*#.*", "", line).strip() for body in blocks for line in body.splitlines()]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_verdict_and_cause_is_explained(language: str) -> None:
    text = (DOCS / language / "operators.md").read_text()
    assert not [kind for kind in (*VerdictKind, *Cause) if f"`{kind}`" not in text]
