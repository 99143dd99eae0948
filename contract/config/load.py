"""Read a configuration and report everything that is wrong with it in one go."""

import difflib
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from contract.config.chinese import PROBLEMS
from contract.config.data import in_storage
from contract.config.feed import fed, rest
from contract.config.pretrained import shaped
from contract.config.whole import BETWEEN, RunConfig
from contract.language import spoken
from contract.plain import plainly, required


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: where (`batch.micro_batch`), what, and what would be right."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists everything that was found."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {len(problems)} problem{'s' if len(problems) != 1 else ''}\n{lines}")

    def told(self, to: str = "") -> str:
        """All problems in the language `to`, by default that of the command that runs here."""
        if (to or spoken()) != "zh":
            return str(self)
        lines = "\n".join(f"  {item.where}：{PROBLEMS.chinese(item.what)}" for item in self.problems)
        return f"{self.source}：{len(self.problems)} 个问题\n{lines}"


def load(path: Path, overrides: Sequence[str] = (), *, only: frozenset[str] = frozenset()) -> RunConfig:
    """The configuration in this file, with `a.b=value` overrides (values in TOML syntax, bare words are strings).

    `only` names the sections that the caller is going to read: problems of others are passed over, and a section
    that is wrong in itself has its defaults then. Empty: all.

    Raises:
        ConfigError: with every problem found.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), [Problem(where="file", what=error.strerror or str(error))]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [Problem(where="file", what=plainly(error))]) from error
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), [Problem(where="file", what=f"not TOML: {error}")]) from error
    problems = [problem for item in overrides if (problem := override(value, item))]
    if problems:
        raise ConfigError(str(path), problems)
    return parse(value, source=str(path), bases=(path.resolve().parent, Path.cwd()), only=only)


def override(value: dict[str, Any], item: str) -> Problem | None:
    """Put `section.key=value` into the mapping; returns what is wrong with it."""
    key, equals, text = item.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        return Problem(where=f"--set {item}", what="write it as section.key=value")
    try:
        new = tomllib.loads(f"v = {text.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        new = text.strip()
    table = value
    for name in names[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return Problem(where=f"--set {item}", what=f"{name} is not a table")
        table = inner
    table[names[-1]] = new
    return None


def parse(
    value: Mapping[str, Any], *, source: str, bases: Sequence[Path], only: frozenset[str] = frozenset()
) -> RunConfig:
    """The configuration in this mapping; `bases` are the directories in which a relative path is looked for.

    `only` as in `load`.

    Raises:
        ConfigError: with every problem found: in each section, between sections, and in what they refer to.
    """
    try:
        config = RunConfig.model_validate(value)
        problems: list[Problem] = []
        broken: frozenset[str] = frozenset()
    except ValidationError as error:
        problems = [problem_of(item, value) for item in error.errors(include_url=False)]
        broken = frozenset(str(item["loc"][0]) for item in error.errors(include_url=False) if item["loc"])
        config = _sound_part(value, broken)
    config, contradicting = fed(_anchored(config, bases))
    if not config.job.command:
        model, more = shaped(config.model)
        config, contradicting = config.model_copy(update={"model": model}), [*contradicting, *more]
    problems += [_sentence("", text) for text in contradicting]
    problems += contradictions(config, broken)
    if only:
        problems = [found for found in problems if found.where.partition(".")[0] in only]
    if problems:
        raise ConfigError(source, problems)
    return _self_contained(config)


def _sound_part(value: Mapping[str, Any], broken: frozenset[str]) -> RunConfig:
    """The sections that are right in themselves, so that contradictions can be told in the same go."""
    return RunConfig.model_validate(
        {
            name: section
            for name, section in value.items()
            if name not in broken and name in RunConfig.model_fields
        }
    )


def _anchored(config: RunConfig, bases: Sequence[Path]) -> RunConfig:
    """Paths made absolute and the JSON taken in: the run may be resumed from anywhere, without the recipe's folder."""
    corpora = [c.model_copy(update={"path": _anchor(c.path, bases)}) for c in config.data.corpora]
    data = config.data.model_copy(update={"path": _anchor(config.data.path, bases), "corpora": corpora})
    deepspeed = config.deepspeed.model_copy(update={"config": _anchor(config.deepspeed.config, bases)})
    places = {key: _anchor(getattr(config.model, key), bases) for key in ("init_from", "hf_config")}
    model = config.model.model_copy(update={key: place for key, place in places.items() if place})
    return config.model_copy(update={"data": data, "deepspeed": deepspeed, "model": model})


def _self_contained(config: RunConfig) -> RunConfig:
    """DeepSpeed's JSON moves into the configuration: the run must not depend on a file that somebody edits later."""
    try:
        settings = config.deepspeed.settings()
    except ValueError:  # passed over by a caller that does not read the section
        return config
    inline = settings if config.job.command else rest(settings)
    deepspeed = config.deepspeed.model_copy(update={"inline": inline, "config": ""})
    return config.model_copy(update={"deepspeed": deepspeed})


def _anchor(path: str, bases: Sequence[Path]) -> str:
    if not path or Path(path).is_absolute() or in_storage(path):
        return path
    tried = [(base / path).resolve() for base in bases]
    return str(next((place for place in tried if place.exists()), tried[0] if tried else path))


def contradictions(config: RunConfig, broken: frozenset[str]) -> list[Problem]:
    """Problems between keys and between sections, those aside that are `broken` in themselves."""
    found: list[Problem] = []
    for name in RunConfig.model_fields:
        if name in broken:
            continue
        section = getattr(config, name)
        for text in section.contradictions():
            key, _, what = text.partition(": ")
            found.append(Problem(where=f"{name}.{key}", what=what))
    for needs, check in BETWEEN:
        if not needs & broken:
            found += [_sentence("", text) for text in check(config)]
    return found


def _sentence(section: str, text: str) -> Problem:
    key, _, what = text.partition(": ")
    return Problem(where=f"{section}.{key}" if section else key, what=what)


def problem_of(item: Any, value: Any) -> Problem:
    """One error of pydantic in our words; `value` is the mapping that it is about."""
    where = ".".join(_as_written(item["loc"], value)) or "file"
    if item["type"] == "extra_forbidden":
        return Problem(where=where, what=f"unknown key{_did_you_mean(item['loc'])}")
    shown = repr(item["input"])
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return Problem(where=where, what=f"is {shown}; {required(item)}")


def _as_written(location: Sequence[str | int], value: Any) -> list[str]:
    """The place in the user's words: a table that stands for a list of one has no number."""
    found = []
    for part in location:
        if isinstance(part, int) and isinstance(value, Mapping):
            continue
        found.append(str(part))
        try:
            value = value[part]
        except (LookupError, TypeError):
            value = None
    return found


def _did_you_mean(location: Sequence[str | int]) -> str:
    known = _keys_at([part for part in location[:-1] if isinstance(part, str)])
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known here: {', '.join(known)}" if known else ""


def _keys_at(parents: Sequence[str]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for name in parents:
        field = model.model_fields.get(name)
        kind = field.annotation if field else None
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return []
        model = kind
    return sorted(model.model_fields)


def dump(config: RunConfig) -> str:
    """The resolved configuration with every default, as TOML."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def digest(text: str) -> str:
    """What a configuration is told apart by, of its `dump`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_resolved(path: Path) -> RunConfig:
    """run.toml of a run directory. Trusted to be sound (we wrote it), so the data is not looked for.

    Raises:
        ConfigError: it is not there, or was written by another version.
    """
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        return RunConfig.model_validate(value)
    except OSError as error:
        raise ConfigError(str(path), [Problem(where="file", what=error.strerror or str(error))]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [Problem(where="file", what=plainly(error))]) from error
    except ValidationError as error:
        raise ConfigError(
            str(path), [problem_of(item, value) for item in error.errors(include_url=False)]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), [Problem(where="file", what=f"not TOML: {error}")]) from error
