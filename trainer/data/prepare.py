"""Text files to token shards. Needs no torch.

A prepared directory appears whole or not at all: everything is written aside, synced, and renamed into place. The
same sources and options give the same bytes, and are recognised when they are there already.
"""

import json
import os
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from contract import files
from contract.config.data import INDEX, INDEX_VERSION, TOKENIZER, data_problem
from trainer.data.tokenizer import BpeTokenizer, ByteTokenizer, Tokenizer

SUFFIXES = frozenset(
    {".py", ".txt", ".md", ".rst", ".toml", ".json", ".c", ".h", ".cpp", ".js", ".html", ".tex"}
)
_DOCUMENT_BYTES = 64 << 10  # larger files are cut at line ends, so that the held-out part is a mixture


class PrepareError(ValueError):
    """The sources cannot be prepared; the message says what would help."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What decides about the content of a prepared directory.

    `vocab_size` 0 keeps bytes; else a BPE of that size is trained. `validation_share` of the bytes, in whole
    documents, is held out. `shard_tokens` is the most that one file holds. `cap_bytes` 0 takes everything.
    `tokenizer` is the content of a tokenizer.json to use instead of training one.
    """

    vocab_size: int = 1024
    validation_share: float = 0.05
    shard_tokens: int = 64 << 20
    cap_bytes: int = 0
    tokenizer: str = ""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text; `name` decides about order and about being held out."""

    name: str
    text: str


def standard_library() -> Path:
    """The sources of the Python that runs this: a corpus that every machine has."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(sources: Sequence[Path]) -> list[tuple[str, Path]]:
    """(name, path) of each text file under the sources, in an order that does not depend on the file system."""
    found: list[tuple[str, Path]] = []
    for source in sources:
        if source.is_file():
            found.append((source.name, source))
            continue
        if not source.is_dir():
            raise PrepareError(f"{source}: neither a file nor a directory")
        for path in source.rglob("*"):
            name = path.relative_to(source)
            if path.suffix in SUFFIXES and "site-packages" not in name.parts and path.is_file():
                found.append((name.as_posix(), path))
    return sorted(found)


def read_documents(sources: Sequence[Path], cap_bytes: int) -> list[Document]:
    """Documents in order, until `cap_bytes` of text are reached.

    With a cap, files are taken in the order of a hash of their names, so that a part of a corpus is a mixture of all
    of it and not its first folder.
    """
    listed = source_files(sources)
    if cap_bytes:
        listed.sort(key=lambda item: _by_hash(item[0]))
    documents: list[Document] = []
    size = 0
    for name, path in listed:
        for part, text in enumerate(_parts(path)):
            documents.append(Document(name=f"{name}#{part:06d}", text=text))
            size += len(text.encode())
            if cap_bytes and size >= cap_bytes:
                return sorted(documents, key=lambda document: document.name)
    return documents


def _by_hash(name: str) -> tuple[int, str]:
    """Sorts names into an order that looks random and is the same everywhere."""
    return xxhash.xxh3_64_intdigest(name.encode(errors="surrogateescape")), name


def _parts(path: Path) -> Iterator[str]:
    """Pieces of a file of about a document's size, cut at line ends; nothing for an empty file."""
    piece: list[str] = []
    size = 0
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for line in file:
            piece.append(line)
            size += len(line)
            if size >= _DOCUMENT_BYTES:
                yield "".join(piece)
                piece, size = [], 0
    if piece:
        yield "".join(piece)


def divide(documents: Sequence[Document], share: float) -> tuple[list[Document], list[Document]]:
    """(train, validation): whole documents are held out, chosen by a hash of their names."""
    if len(documents) < 2:
        raise PrepareError("at least two documents are needed: one to train on, one to hold out")
    total = sum(len(document.text) for document in documents)
    by_hash = sorted(documents, key=lambda document: _by_hash(document.name))
    held: set[str] = set()
    size = 0
    for document in by_hash[:-1]:
        if size >= share * total:
            break
        held.add(document.name)
        size += len(document.text)
    return (
        [document for document in documents if document.name not in held],
        [document for document in documents if document.name in held],
    )


def fingerprint(documents: Sequence[Document], recipe: Recipe) -> str:
    """What the prepared bytes depend on, as a hash."""
    # Directories from before there was a choice of the tokenizer must be recognised.
    decides = {key: value for key, value in asdict(recipe).items() if key != "tokenizer" or value}
    state = xxhash.xxh3_128(json.dumps([INDEX_VERSION, decides], sort_keys=True).encode())
    for document in documents:
        state.update(f"{document.name}\0{len(document.text)}\0".encode(errors="surrogateescape"))
        state.update(document.text.encode(errors="replace"))
    return state.hexdigest()


def prepare(sources: Sequence[Path], target: Path, recipe: Recipe) -> dict[str, Any]:
    """Write the shards of these sources to `target`, unless exactly they are there already. Returns the index.

    Raises:
        PrepareError: nothing to prepare, or `target` holds something else.
    """
    documents = read_documents(sources, recipe.cap_bytes)
    mark = fingerprint(documents, recipe)
    there = files.read_json(target / INDEX)
    if there is not None and there.get("fingerprint") == mark and not data_problem(target):
        return there
    if target.exists():
        raise PrepareError(f"{target} exists and holds other data; remove it or choose another directory")
    train, validation = divide(documents, recipe.validation_share)
    aside = target.with_name(f".{target.name}.partial-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        index = _write(aside, train, validation, recipe) | {"fingerprint": mark}
        files.replace_json(aside / INDEX, index)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    files.sync_directory(target.parent)
    return index


def _tokenizer(train: list[Document], recipe: Recipe) -> Tokenizer:
    if recipe.tokenizer:
        return BpeTokenizer(recipe.tokenizer)
    if not recipe.vocab_size:
        return ByteTokenizer()
    return BpeTokenizer.train((document.text for document in train), vocab_size=recipe.vocab_size)


def recipe_like(prepared: Path, recipe: Recipe) -> Recipe:
    """The recipe with the tokenizer of a prepared directory, so that the two can be mixed.

    Raises:
        PrepareError: nothing is prepared there.
    """
    if problem := data_problem(prepared):
        raise PrepareError(problem)
    content = files.read_bytes(prepared / TOKENIZER)
    if content is None:
        return replace(recipe, vocab_size=0)
    return replace(recipe, vocab_size=0, tokenizer=content.decode())


def _write(target: Path, train: list[Document], validation: list[Document], recipe: Recipe) -> dict[str, Any]:
    tokenizer = _tokenizer(train, recipe)
    if content := tokenizer.file_content():
        files.replace_file(target / TOKENIZER, content.encode())
    dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    splits = {
        name: {"shards": _write_split(target, name, documents, tokenizer, dtype, recipe.shard_tokens)}
        for name, documents in (("train", train), ("validation", validation))
    }
    return {
        "version": INDEX_VERSION,
        "dtype": dtype,
        "tokenizer": {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "end": tokenizer.end},
        "documents": {"train": len(train), "validation": len(validation)},
        "splits": splits,
    }


def _write_split(
    target: Path, name: str, documents: list[Document], tokenizer: Tokenizer, dtype: str, shard_tokens: int
) -> list[dict[str, Any]]:
    """Write one split's shards; returns their entries in the index."""
    shards: list[dict[str, Any]] = []
    waiting: list[int] = []

    def flush(count: int) -> None:
        data = np.asarray(waiting[:count], dtype=dtype).tobytes()
        del waiting[:count]
        file = f"{name}-{len(shards):05d}.bin"
        files.replace_file(target / file, data)
        digest = xxhash.xxh3_64_hexdigest(data)
        shards.append({"file": file, "tokens": count, "bytes": len(data), "xxh3": digest})

    for document in documents:
        waiting += tokenizer.encode(document.text)
        waiting.append(tokenizer.end)
        while len(waiting) >= shard_tokens:
            flush(shard_tokens)
    if waiting:
        flush(len(waiting))
    return shards
