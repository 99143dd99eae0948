"""Writes what the documents must not say by hand: every setting, every command, every kind of failure.

`python -P tools/reference.py` writes docs/reference.md and docs/{en,zh}/failures.md; a test compares them with this.
"""

import inspect
import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ciuic import application
from contract.config import RunConfig
from contract.states import Cause
from supervisor.diagnose.catalogue import Retry, load

HERE = Path(__file__).resolve().parents[1]
_MADE = "<!-- Written by `make reference`; change the code instead. -->"
_RETRY = {
    "en": {Retry.YES: "yes", Retry.ONCE: "once", Retry.NO: "no"},
    "zh": {Retry.YES: "可以", Retry.ONCE: "只一次", Retry.NO: "不"},
}
_HEADS = {
    "en": (
        "# Failures and what to do",
        "What `ciuic diagnose`, `explain` and the alerts can name, from the catalogue. “Again” says whether the same run may be started once more as it is: that is what the supervisor goes by.",
        "| signature | again | what to do |",
    ),
    "zh": (
        "# 故障与对策",
        "`ciuic diagnose`、`explain` 和告警能叫出名字的故障，来自故障目录。“重来”表示同一任务能否原样再启动一次：看护进程以此为准。",
        "| 特征 | 重来 | 怎么办 |",
    ),
}


def documents() -> dict[str, str]:
    """Path below docs/ → text."""
    return {
        "reference.md": "\n".join([*_settings(), *_commands()]) + "\n",
        **{f"{language}/failures.md": "\n".join(_failures(language)) + "\n" for language in ("en", "zh")},
    }


def _settings() -> Iterator[str]:
    yield from ("# Reference", "", _MADE, "", "## Settings of a run (TOML)", "")
    yield "Each table is a section of the recipe. Unknown keys are refused; `ciuic check` prints every problem at once."
    for name, field in RunConfig.model_fields.items():
        yield from _section(name, field.annotation)


def _section(name: str, kind: object) -> Iterator[str]:
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    rows, below = [], []
    for key, field in kind.model_fields.items():
        model = _model(field.annotation)
        if model is not None:
            named = typing.get_origin(field.annotation) is dict
            below.append((f"{name}.{key}" + ".NAME" * named, model))
            continue
        rows.append(f"| `{key}` | {_default(field)} | {_cell(field.description or '')} |")
    yield from ("", f"### [{name}]", "")
    about = inspect.cleandoc(kind.__doc__ or "").splitlines()
    if about and kind.__doc__ != BaseModel.__doc__:
        yield from (about[0], "")
    if rows:
        yield from ("| key | default | meaning |", "|---|---|---|", *rows)
    for path, model in below:
        yield from _section(path, model)


def _model(annotation: object) -> type[BaseModel] | None:
    """The table behind a field: itself, or the values of a table of tables or the items of a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [_model(part) for part in typing.get_args(annotation)]
    return next((model for model in found if model is not None), None)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "(required)"
    text = f"`{json.dumps(value, ensure_ascii=False, default=str)}`".replace("|", "\\|")
    choices = _choices(field.annotation)
    return f"{text} of {', '.join(f'`{choice}`' for choice in choices)}" if choices else text


def _choices(annotation: object) -> tuple[str, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return tuple(str(choice) for choice in typing.get_args(annotation) if choice != "")
    if typing.get_origin(annotation) in {typing.Union, types.UnionType, typing.Annotated}:
        return next((found for part in typing.get_args(annotation) if (found := _choices(part))), ())
    return ()


def _commands() -> Iterator[str]:
    yield from ("", "## Commands", "", "`ciuic COMMAND --help` says the same.")
    yield from _command("ciuic", typer.main.get_command(application()))


def _command(name: str, command: object) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children:
        for key, child in children.items():
            yield from _command(f"{name} {key}", child)
        return
    yield from ("", f"### {name}", "", _cell(getattr(command, "help", "") or ""), "")
    for parameter in getattr(command, "params", ()):
        record = getattr(parameter, "help", "") or ""
        label = (
            ", ".join(parameter.opts)
            if parameter.param_type_name == "option"
            else (parameter.metavar or parameter.name.upper())
        )
        yield f"- `{label}`: {_cell(record)}" if record else f"- `{label}`"


def _failures(language: str) -> Iterator[str]:
    head, about, table = _HEADS[language]
    yield from (head, "", _MADE, "", about)
    entries = load().entries
    for cause in Cause:
        advised = [item for item in entries if item.cause is cause and getattr(item, language)]
        if not advised:
            continue
        yield from ("", f"## {cause}", "", table, "|---|---|---|")
        for item in advised:
            yield f"| `{item.name}` | {_RETRY[language][item.retry]} | {_cell(getattr(item, language))} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


if __name__ == "__main__":
    for place, text in documents().items():
        path = HERE / "docs" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
