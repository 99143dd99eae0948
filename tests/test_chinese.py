"""Chinese where people read: every sentence that these programs make has its Chinese, and no new one goes without."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.config import ConfigError, parse
from contract.config.chinese import PROBLEMS
from contract.config.whole import RunConfig
from contract.language import Book, piecewise
from contract.plain import _PATTERNS
from slurm.chinese import SUBMISSION
from slurm.node.chinese import NODE
from supervisor.doctor.chinese import FINDINGS
from trainer.chinese import TRAINER

ROOT = Path(__file__).parents[1]
ENGLISH = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")
# Commands stay what they are in every language.
COMMANDS = re.compile(r"`[^`]*`|pip install \S+|nothing to repeat")


def english(said: str) -> bool:
    """Whether an English sentence of ours is left in it."""
    return bool(ENGLISH.search(COMMANDS.sub("", said)))


# Whose sentences → the book that tells them. Names of folders mean every module in them.
SPEAKERS = {
    "contract/config": PROBLEMS,
    "slurm/create.py": PROBLEMS,
    "slurm/commands.py": SUBMISSION,
    "slurm/find.py": SUBMISSION,
    "slurm/plot.py": SUBMISSION,
    "slurm/commands_tune.py": NODE,
    "slurm/node/addresses.py": NODE,
    "slurm/node/choose.py": NODE,
    "slurm/node/explain.py": NODE,
    "slurm/node/explicit.py": NODE,
    "slurm/node/hcas.py": NODE,
    "slurm/node/links.py": NODE,
    "slurm/node/settings.py": NODE,
    "supervisor/doctor": FINDINGS,
    "trainer/batch/fit.py": TRAINER,
    "trainer/commands.py": TRAINER,
    "trainer/commands_fit.py": TRAINER,
    "trainer/data/prepare.py": TRAINER,
}
# Said by the command line itself (help, wrong usage), or read by machines.
UNTOLD = {"Option", "Argument", "Typer", "BadParameter", "compile", "Field", "check_output"}


def sentences(path: Path) -> Iterator[str]:
    """English sentences in a module's strings, `X` in the place of what is put into them."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        called = getattr(getattr(node, "func", None), "attr", "") or getattr(
            getattr(node, "func", None), "id", ""
        )
        if isinstance(node, ast.Call) and called in UNTOLD:
            skipped |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):  # its pieces are no sentences of their own
            skipped |= {id(piece) for piece in node.values}
            skipped |= {id(inner) for value in node.values if getattr(value, "format_spec", None) for inner in ast.walk(value.format_spec)}  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = _filled(node)
        if english(text):
            yield text


def _filled(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_filled(value) if isinstance(value, ast.Constant) else "X" for value in node.values)
    return node.value if isinstance(node.value, str) else ""


def modules(place: str) -> list[Path]:
    path = ROOT / place
    found = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return [module for module in found if module.name != "chinese.py"]


@pytest.mark.parametrize("place", SPEAKERS)
def test_every_sentence_has_its_chinese(place) -> None:
    book = SPEAKERS[place]
    forms = "\n".join(re.sub(r"\{\w+\}", "X", form) for form in book.forms)

    def told(text: str) -> bool:
        """By itself, behind the key that it is about, or as a part of a sentence."""
        alone = re.sub(r"^[\w.{}\[\]' ]+?: ", "", text)
        return (
            not english(book.chinese(text)) or not english(book.chinese(alone)) or alone.strip(" X") in forms
        )

    unknown = [
        f"{module.name}: {text}" for module in modules(place) for text in sentences(module) if not told(text)
    ]
    assert unknown == []


def test_no_chinese_sentence_asks_for_what_the_english_one_does_not_have() -> None:
    for book in SPEAKERS.values():
        for form, chinese in book.forms.items():
            wanted = set(re.findall(r"(?<!\{)\{(\w+)\}", chinese))
            assert wanted <= set(re.findall(r"\{(\w+)\}", form)), form
            assert re.search(r"[^\x00-\x7f]", chinese) or not re.search("[a-z]{3}", COMMANDS.sub("", form)), (
                form
            )


@pytest.mark.parametrize("form", _PATTERNS.values())
def test_what_a_text_must_look_like_is_said_in_chinese(form) -> None:
    assert not english(PROBLEMS.chinese(f"is 'x'; write {form}"))


def _wrong_values() -> Iterator[tuple[str, str, object]]:
    for section, field in RunConfig.model_fields.items():
        for key in field.annotation.model_fields:
            for value in ("?!", -1e9, 1.5, True, [], {"a": 1}, float("inf")):
                yield section, key, value


def test_what_pydantic_has_against_a_value_is_said_in_chinese() -> None:
    """Every key of the configuration with values of the wrong kind or size."""
    found = set()
    for section, key, value in _wrong_values():
        try:
            parse({section: {key: value}}, source="r", bases=(), only=frozenset({section}))
        except ConfigError as error:
            lines = error.told("zh").splitlines()[1:]
            found |= {line for line in lines if english(line)}
    assert found == set()


def test_the_sentence_that_says_most_is_meant_and_the_words_of_others_stay() -> None:
    book = Book(
        {
            "{a} is set": "已设 {a}",
            "{a} is set: {why}": "已设 {a}：{why}",
            "no way": "没有路",
            "{a}: {b}": "{a}：{b}",
        }
    )
    assert book.chinese("x is set: no way") == "已设 x：没有路"
    assert book.chinese("x is set; no way") == "已设 x；没有路"
    assert book.chinese("eth0: no way") == "eth0：没有路"
    assert book.chinese("sbatch: error: it is full") == "sbatch: error: it is full"
    assert book.chinese("no way; nobody knows") == "没有路；nobody knows"
    whole = {"a; b": "甲乙", "c": "丙"}
    assert piecewise("a; b; c", lambda part: whole.get(part, part)) == "甲乙；丙"


def ciuic(*arguments, **environment) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ciuic", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_commands_speak_the_language_that_is_asked_for(tmp_path) -> None:
    recipe = tmp_path / "bad.toml"
    recipe.write_text('[run]\nsteps = 5\n[job]\nnodes = 0\ncommand = ["true"]\n')
    assert (
        f"{recipe}：1 个问题\n  job.nodes：现为 0；应大于或等于 1\n"
        == ciuic("check", recipe, "--lang", "zh").stderr
    )
    assert "：1 个问题" in ciuic("submit", recipe, "--root", tmp_path, CIUIC_LANG="zh").stderr
    assert ": 1 problem\n" in ciuic("check", recipe, "--lang", "en", CIUIC_LANG="zh").stderr
    told = ciuic("trainer", "fit", recipe, "--set", "job.nodes=1", "--lang", "zh")
    assert (told.returncode, told.stderr) == (
        78,
        "fit：[job] command 运行的是别的程序；只能试 ciuic 自带的训练程序\n",
    )
    tuned = ciuic("tune", "--explain", "--lang", "zh").stdout
    assert tuned.startswith("网络：")
    assert not english(tuned)
