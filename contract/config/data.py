"""[data]: the prepared token shards, their order, and the held-out part."""

from pathlib import Path

from pydantic import Field

from contract import files
from contract.config.base import Section

INDEX = "index.json"
INDEX_VERSION = 1
TOKENIZER = "tokenizer.json"  # beside the index, unless the tokens are bytes


class Corpus(Section):
    """[[data.corpora]]: one of several prepared directories."""

    path: str
    """Directory that `ciuic trainer prepare-data` wrote, like [data] path."""
    weight: float = Field(default=1.0, gt=0)
    """Its share of the samples, in proportion to the weights of the others. A small corpus with a large weight is read
    several times while a large one is not yet through."""


class Data(Section):
    """What is read, in which order, and how often the held-out part is evaluated."""

    path: str = ""
    """Directory that `ciuic trainer prepare-data` wrote. Relative: to the recipe, else to the working directory."""
    corpora: list[Corpus] = Field(default_factory=list)
    """Several directories instead of `path`, mixed by weight. All must have the same tokenizer: prepare the others with
    `--tokenizer` and the first."""
    evaluate_interval_steps: int = Field(default=0, ge=0)
    """Steps between two evaluations on the held-out part; 0 never evaluates. Every evaluation costs forward passes."""
    evaluate_samples: int = Field(default=64, ge=1)
    """Samples of one evaluation, all ranks together; rounded up to whole micro-batches on every rank. Several
    corpora are evaluated in the mixture of the training."""

    @property
    def sources(self) -> list[Corpus]:
        """The corpora, be it one or several."""
        return self.corpora or [Corpus(path=self.path)]

    def missing(self) -> list[str]:
        """What keeps the data from being used, as `key: sentence`; empty when nothing does."""
        if self.corpora:
            if self.path:
                return ["path: set beside corpora; list it among them"]
            paths = [Path(corpus.path) for corpus in self.corpora]
            problems = [problem for path in paths if (problem := data_problem(path))]
            return [f"corpora: {problem}" for problem in problems or _other_tokenizers(paths)]
        if not self.path:
            return ["path: not set; `ciuic trainer prepare-data` makes a directory of token shards"]
        problem = data_problem(Path(self.path))
        return [f"path: {problem}"] if problem else []


def _other_tokenizers(paths: list[Path]) -> list[str]:
    """Corpora whose tokens mean something else than those of the first."""
    found = [
        ((files.read_json(path / INDEX) or {}).get("tokenizer"), files.read_bytes(path / TOKENIZER))
        for path in paths
    ]
    return [
        f"{path} has another tokenizer than {paths[0]}; prepare it again with --tokenizer {paths[0]}"
        for path, its in zip(paths, found, strict=True)
        if its != found[0]
    ]


def data_problem(path: Path) -> str:
    """Why the directory cannot be trained from, "" when it can. Cheap: reads the index and looks at sizes.

    A directory without an index is one that no preparation finished, and counts as missing.
    """
    try:
        index = files.read_json(path / INDEX)
        if index is None:
            return f"{path}: no prepared data there (no {INDEX}); `ciuic trainer prepare-data` makes it"
        if index.get("version") != INDEX_VERSION:
            return f"{path}: {INDEX} has format version {index.get('version')!r}, this program reads {INDEX_VERSION}"
        for split in ("train", "validation"):
            for shard in index["splits"][split]["shards"]:
                size = (path / shard["file"]).stat().st_size
                if size != shard["bytes"]:
                    return f"{path}: {shard['file']} has {size} bytes, the index says {shard['bytes']}"
    except FileNotFoundError as error:
        return f"{path}: {Path(str(error.filename)).name} is missing, the index names it"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path}: cannot be read: {type(error).__name__}: {error}"
    return ""
