"""A checkpoint exists when its manifest does: written last, after every shard is on disk; removed first."""

import json
import math
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import xxhash

from contract import files
from contract.layout import RunDir, checkpoint_name, parse_checkpoint_name

NAME = "MANIFEST.json"
VERSION = 2  # 1 had no checksum of its own
_CHUNK = 4 << 20


class ManifestError(ValueError):
    """The manifest cannot be what it says; the checkpoint does not count."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of a checkpoint; `path` is relative to its directory, `xxh3` the 64-bit hash in hex."""

    path: str
    size: int
    xxh3: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a complete checkpoint consists of, and what a resume must know before it loads.

    `saved_at` is UTC seconds by rank 0's clock, 0 where it is not known; `val_loss` the loss on the held-out part as
    it was evaluated since the save before, None when it was not.
    """

    run: str
    step: int
    attempt: int
    generation: int
    world_size: int
    tokens: int
    position: int  # first sampler position that the checkpoint has not consumed
    shards: tuple[Shard, ...]
    config_digest: str = ""
    code: str = ""  # version of the program that wrote it, and a digest of its sources
    skip_windows: tuple[tuple[int, int], ...] = ()  # sampler positions that the run jumps over
    saved_at: float = 0.0
    val_loss: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # loss, versions: for people

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(shard.size for shard in self.shards)

    def encode(self) -> bytes:
        value = {"version": VERSION, **asdict(self)}
        value["xxh3"] = _own_digest(value)
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _own_digest(value: Mapping[str, Any]) -> str:
    """Over everything else in the manifest, whatever its layout: a bit that turned must not go unseen."""
    rest = {key: item for key, item in value.items() if key != "xxh3"}
    return xxhash.xxh3_64_hexdigest(json.dumps(rest, sort_keys=True, ensure_ascii=True).encode())


def _shard(value: object) -> Shard:
    if not isinstance(value, dict):
        raise ManifestError("a shard is not an object")
    path, size, digest = value.get("path"), value.get("size"), value.get("xxh3")
    if not isinstance(path, str) or not isinstance(digest, str) or type(size) is not int or size < 0:
        raise ManifestError(f"shard {path!r}: path, size or checksum is missing")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or not path.isprintable():
        raise ManifestError(f"shard {path!r} lies outside the checkpoint")
    if pure.parts == (NAME,):
        raise ManifestError("the manifest lists itself")
    return Shard(path=path, size=size, xxh3=digest)


def _number(value: Mapping[str, Any], key: str, least: int) -> int:
    number = value.get(key)
    if type(number) is not int or number < least:
        raise ManifestError(f"{key} is {number!r}, a whole number of at least {least} was expected")
    return number


def decode(data: bytes) -> Manifest:
    """The manifest in these bytes.

    Raises:
        ManifestError: whatever is wrong with them.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ManifestError("not a JSON object")
    if value.get("version") not in (1, VERSION):
        raise ManifestError(f"format version {value.get('version')!r}, this program reads 1 and {VERSION}")
    if value["version"] != 1 and value.get("xxh3") != _own_digest(value):
        raise ManifestError("the manifest's own checksum is wrong")
    shards = value.get("shards")
    if not isinstance(shards, list) or not shards:
        raise ManifestError("no shards are listed")
    run, digest, code = value.get("run"), value.get("config_digest", ""), value.get("code", "")
    facts = value.get("facts", {})
    if not (isinstance(run, str) and isinstance(digest, str) and isinstance(code, str)):
        raise ManifestError("run, config_digest or code is no text")
    if not isinstance(facts, dict):
        raise ManifestError("facts is not an object")
    return Manifest(
        run=run,
        step=_number(value, "step", 0),
        attempt=_number(value, "attempt", 1),
        generation=_number(value, "generation", 1),
        world_size=_number(value, "world_size", 1),
        tokens=_number(value, "tokens", 0),
        position=_number(value, "position", 0),
        shards=tuple(_shard(item) for item in shards),
        config_digest=digest,
        code=code,
        skip_windows=_windows(value.get("skip_windows", [])),
        saved_at=_real(value.get("saved_at")) or 0.0,
        val_loss=_real(value.get("val_loss")),
        facts=facts,
    )


def _real(value: object) -> float | None:
    """A finite number, None for anything else: these numbers are for choices that may also be left out."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _windows(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list):
        raise ManifestError("skip_windows is not a list")
    found = []
    for item in value:
        if not isinstance(item, list) or len(item) != 2 or not all(type(number) is int for number in item):
            raise ManifestError(f"skip_windows holds {item!r}, a pair of whole numbers was expected")
        found.append((item[0], item[1]))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint directory as found. `reason` says why it is not valid, "" when it is."""

    path: Path
    step: int
    attempt: int
    generation: int
    manifest: Manifest | None
    reason: str

    @property
    def valid(self) -> bool:
        return not self.reason


def digest_file(path: Path) -> str:
    """xxh3-64 of a file in hex, read in 4 MiB pieces."""
    state = xxhash.xxh3_64()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            state.update(piece)
    return state.hexdigest()


def publish(directory: Path, manifest: Manifest) -> None:
    """Make the checkpoint exist. Every shard must be synced already; the manifest is the last write."""
    files.replace_file(directory / NAME, manifest.encode())


def retire(directory: Path) -> None:
    """Make the checkpoint not exist, durably, before anything of it is removed."""
    (directory / NAME).unlink(missing_ok=True)
    files.sync_directory(directory)


def remove(directory: Path) -> None:
    """Remove a checkpoint, valid or not. A crash on the way leaves one that does not count, never half of one.

    Raises:
        OSError: something of it could not be removed; it does not count any more, or it is whole.
    """
    retire(directory)
    shutil.rmtree(directory)
    files.sync_directory(directory.parent)


def examine(directory: Path, *, deep: bool) -> Checkpoint:
    """Look at one checkpoint directory: manifest, names, sizes; with `deep` the checksums too.

    Raises:
        ValueError: the directory's name is not a checkpoint's.
    """
    named = parse_checkpoint_name(directory.name)
    if named is None:
        raise ValueError(f"{directory}: not a checkpoint directory's name")
    step, attempt, generation = named
    manifest: Manifest | None = None
    try:
        data = files.read_bytes(directory / NAME)
        if data is None:
            raise ManifestError("no manifest: the save did not finish")
        manifest = decode(data)
        if checkpoint_name(manifest.step, manifest.attempt, manifest.generation) != directory.name:
            raise ManifestError("the manifest belongs to another checkpoint")
        for shard in manifest.shards:
            _check_shard(directory / shard.path, shard, deep=deep)
        reason = ""
    except (ManifestError, OSError) as error:
        reason = str(error)
    return Checkpoint(
        path=directory, step=step, attempt=attempt, generation=generation, manifest=manifest, reason=reason
    )


def _check_shard(path: Path, shard: Shard, *, deep: bool) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ManifestError(f"{shard.path} is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise ManifestError(f"{shard.path} is no file")
    size = status.st_size
    if size != shard.size:
        raise ManifestError(f"{shard.path} has {size} bytes, the manifest says {shard.size}")
    if deep and digest_file(path) != shard.xxh3:
        raise ManifestError(f"{shard.path} has another checksum than the manifest says")


def directories(run: RunDir) -> list[Path]:
    """All checkpoint directories of the run, complete or not, newest first (step, then attempt, generation)."""
    try:
        names = [entry for entry in run.checkpoints.iterdir() if parse_checkpoint_name(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(names, key=lambda entry: parse_checkpoint_name(entry.name) or (0, 0, 0), reverse=True)


def read_resumes(run: RunDir) -> dict[tuple[int, int], int]:
    """(attempt, generation) → step at which that generation resumed, for all that have recorded it."""
    found: dict[tuple[int, int], int] = {}
    for path in run.attempts.glob("*/resume-g*.json"):
        record = files.read_json(path)
        if record is not None and isinstance(record.get("step"), int):
            found[(int(path.parent.name), int(path.stem.removeprefix("resume-g")))] = record["step"]
    return found


def in_lineage(step: int, writer: tuple[int, int], resumes: Mapping[tuple[int, int], int]) -> bool:
    """Whether what `writer` (attempt, generation) wrote at `step` counts (design rule 6).

    It counts up to the resume step of every later generation; beyond, it is a zombie's or was rolled back.
    """
    return all(step <= resumed for later, resumed in resumes.items() if later > writer)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Steps from which a resume may be chosen; both inclusive, `max_step` -1 means no bound."""

    min_step: int = 0
    max_step: int = -1

    def allow(self, step: int) -> bool:
        return step >= self.min_step and (self.max_step < 0 or step <= self.max_step)


def candidates(
    run: RunDir, *, before: tuple[int, int], bounds: Bounds, deep: bool, skipped: Callable[[Checkpoint], None]
) -> Iterator[Checkpoint]:
    """Valid checkpoints of the lineage for the generation `before`, newest first.

    Those that do not count are handed to `skipped` with the reason; read lazily, so that a deep check
    costs only what is asked for.
    """
    resumes = {key: step for key, step in read_resumes(run).items() if key < before}
    for directory in directories(run):
        step, attempt, generation = parse_checkpoint_name(directory.name) or (0, 0, 0)
        if not bounds.allow(step) or (attempt, generation) >= before:
            continue
        if not in_lineage(step, (attempt, generation), resumes):
            continue
        checkpoint = examine(directory, deep=deep)
        if checkpoint.valid:
            yield checkpoint
        else:
            skipped(checkpoint)
