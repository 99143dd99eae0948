"""[data]: the prepared token shards, their order, and the held-out part."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from contract import files
from contract.config.base import Section
from contract.config.copies import Service

INDEX = "index.json"
INDEX_VERSION = 1
TOKENIZER = "tokenizer.json"  # beside the index, unless the tokens are bytes
_SCHEME = "s3://"
_BUCKET = re.compile(r"s3://(?P<bucket>[A-Za-z0-9.\-_]+)(?:/(?P<prefix>[^\s?#]*))?\Z")


def bucket_of(path: str) -> tuple[str, str]:
    """(bucket, prefix) of a place in object storage; ("", "") for a directory."""
    found = _BUCKET.match(path)
    return (found["bucket"], (found["prefix"] or "").strip("/")) if found else ("", "")


def in_storage(path: str) -> bool:
    """Whether this is meant to be a place in object storage."""
    return path.startswith(_SCHEME)


class Corpus(Section):
    """[[data.corpora]]: one of several prepared directories."""

    path: str
    """What `ciuic trainer prepare-data` wrote, like [data] path."""
    weight: float = Field(default=1.0, gt=0)
    """Its share of the samples, in proportion to the weights of the others. A small corpus with a large weight is read
    several times while a large one is not yet through."""


class Data(Section):
    """What is read, in which order, and how often the held-out part is evaluated."""

    path: str = ""
    """Directory that `ciuic trainer prepare-data` wrote; relative: to the recipe, else to the working directory. Or
    `s3://bucket/prefix`, to which such a directory was copied as it is: then [node] stage brings it to the node's disk,
    and what is not there yet is fetched sample by sample."""
    store: Service = Field(default_factory=Service)
    """The service of an `s3://` path."""
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

    @property
    def stored(self) -> bool:
        """Whether any of it is in object storage."""
        return any(in_storage(corpus.path) for corpus in self.sources)

    def contradictions(self) -> list[str]:
        wrong = [its for its in self.sources if in_storage(its.path) and not bucket_of(its.path)[0]]
        # Not echoed: whoever writes a key into an address must not find it in a log.
        return [
            *(
                f'{"corpora" if self.corpora else "path"}: takes "s3://bucket/prefix" and nothing else'
                for _ in wrong
            ),
            *(f"store.{text}" for text in self.store.contradictions()),
        ]

    def missing(self) -> list[str]:
        """What keeps the data from being used, as `key: sentence`; empty when nothing does.

        Object storage is not asked here, but at the start: who checks a recipe may have no key.
        """
        if self.corpora:
            if self.path:
                return ["path: set beside corpora; list it among them"]
            paths = [Path(corpus.path) for corpus in self.corpora if not in_storage(corpus.path)]
            problems = [problem for path in paths if (problem := data_problem(path))]
            return [f"corpora: {problem}" for problem in problems or _other_tokenizers(paths)]
        if not self.path:
            return ["path: not set; `ciuic trainer prepare-data` makes a directory of token shards"]
        problem = "" if in_storage(self.path) else data_problem(Path(self.path))
        return [f"path: {problem}"] if problem else []


def _other_tokenizers(paths: list[Path]) -> list[str]:
    kept = [(files.read_bytes(path / INDEX) or b"{}", files.read_bytes(path / TOKENIZER)) for path in paths]
    return other_tokenizers([str(path) for path in paths], kept)


def other_tokenizers(names: Sequence[str], kept: Sequence[tuple[bytes, bytes | None]]) -> list[str]:
    """Corpora whose tokens mean something else than those of the first; `kept`: index and tokenizer of each."""
    found = [(json.loads(index).get("tokenizer"), tokenizer) for index, tokenizer in kept]
    return [
        f"{name} has another tokenizer than {names[0]}; prepare it again with --tokenizer {names[0]}"
        for name, its in zip(names, found, strict=True)
        if its != found[0]
    ]


def index_problem(content: bytes, where: str) -> str:
    """Why a data set with this index cannot be trained from, "" when nothing is known against it."""
    try:
        index = json.loads(content)
        if index.get("version") != INDEX_VERSION:
            return f"{where}: {INDEX} has format version {index.get('version')!r}, this program reads {INDEX_VERSION}"
        for split in ("train", "validation"):
            for shard in index["splits"][split]["shards"]:
                int(shard["bytes"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{where}: {INDEX} cannot be read: {type(error).__name__}: {error}"
    return ""


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
