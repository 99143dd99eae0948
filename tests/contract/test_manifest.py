"""A checkpoint exists when its manifest does; lineage decides whose checkpoints count."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import files
from contract.layout import RunDir, checkpoint_name, parse_checkpoint_name
from contract.manifest import (
    NAME,
    Bounds,
    Checkpoint,
    Manifest,
    ManifestError,
    Shard,
    candidates,
    decode,
    digest_file,
    examine,
    in_lineage,
    publish,
    remove,
    retire,
)


def _save(run: RunDir, step: int, attempt: int = 1, generation: int = 1, *, finish: bool = True) -> Path:
    directory = run.checkpoint(step, attempt, generation)
    directory.mkdir(parents=True)
    shard = directory / "shard-0"
    shard.write_bytes(b"weights of step %d" % step)
    manifest = Manifest(
        run=run.run_id,
        step=step,
        attempt=attempt,
        generation=generation,
        world_size=1,
        tokens=step * 10,
        position=step * 2,
        shards=(Shard(path="shard-0", size=shard.stat().st_size, xxh3=digest_file(shard)),),
    )
    if finish:
        publish(directory, manifest)
    return directory


def _resume(run: RunDir, attempt: int, generation: int, step: int) -> None:
    run.attempt(attempt).path.mkdir(parents=True, exist_ok=True)
    assert files.create_json(run.attempt(attempt).resume(generation), {"version": 1, "step": step})


def _found(
    run: RunDir, before: tuple[int, int], *, deep: bool = True, bounds: Bounds | None = None
) -> tuple[list[int], list[str]]:
    skipped: list[Checkpoint] = []
    steps = [
        checkpoint.step
        for checkpoint in candidates(
            run, before=before, bounds=bounds or Bounds(), deep=deep, skipped=skipped.append
        )
    ]
    return steps, [checkpoint.reason for checkpoint in skipped]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(path=tmp_path / "tiny-1")


def test_newest_first_and_the_half_written_one_is_skipped_with_the_reason(run: RunDir) -> None:
    _save(run, 10)
    _save(run, 20)
    _save(run, 30, finish=False)
    assert _found(run, (1, 2)) == ([20, 10], ["no manifest: the save did not finish"])


def test_truncated_and_flipped_shards_are_skipped_with_the_reason(run: RunDir) -> None:
    _save(run, 10)
    short, flipped = _save(run, 20) / "shard-0", _save(run, 30) / "shard-0"
    short.write_bytes(short.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[3] ^= 1
    flipped.write_bytes(data)
    steps, reasons = _found(run, (1, 2))
    assert steps == [10]
    assert reasons[0].startswith("shard-0 has another checksum")
    assert reasons[1].startswith("shard-0 has 17 bytes, the manifest says 18")


def test_a_missing_shard_and_a_foreign_manifest_do_not_count(run: RunDir) -> None:
    (_save(run, 10) / "shard-0").unlink()
    other = _save(run, 20)
    (other / NAME).write_bytes((run.checkpoint(10, 1, 1) / NAME).read_bytes())
    steps, reasons = _found(run, (1, 2))
    assert steps == []
    assert reasons == ["the manifest belongs to another checkpoint", "shard-0 is missing"]


def test_bounds_are_inclusive(run: RunDir) -> None:
    for step in (10, 20, 30):
        _save(run, step)
    assert _found(run, (1, 2), bounds=Bounds(min_step=10, max_step=20))[0] == [20, 10]
    assert _found(run, (1, 2), bounds=Bounds(min_step=11, max_step=29))[0] == [20]


def test_a_zombies_checkpoint_past_the_later_resume_does_not_count(run: RunDir) -> None:
    _save(run, 10, generation=1)
    _resume(run, 1, 2, 10)
    _save(run, 20, generation=1)  # written by generation 1 after generation 2 had resumed at 10
    assert _found(run, (1, 3))[0] == [10]
    _save(run, 15, generation=2)
    assert _found(run, (1, 3))[0] == [15, 10]


def test_a_generation_never_resumes_from_itself_or_a_later_one(run: RunDir) -> None:
    _save(run, 10, generation=2)
    assert _found(run, (1, 2))[0] == []
    assert _found(run, (2, 1))[0] == [10]


def test_retired_is_gone_before_its_files_are(run: RunDir) -> None:
    directory = _save(run, 10)
    retire(directory)
    assert not examine(directory, deep=False).valid
    retire(directory)


resumes = st.dictionaries(st.tuples(st.integers(1, 3), st.integers(1, 4)), st.integers(0, 30), max_size=6)


@given(resumes, st.tuples(st.integers(1, 3), st.integers(1, 4)), st.integers(0, 30))
def test_lineage_is_closed_downwards(
    found: dict[tuple[int, int], int], writer: tuple[int, int], step: int
) -> None:
    """What counts at a step counts at every earlier step of the same writer."""
    if in_lineage(step, writer, found):
        assert all(in_lineage(earlier, writer, found) for earlier in range(step))


def test_names_round_trip() -> None:
    assert parse_checkpoint_name(checkpoint_name(1200, 1, 2)) == (1200, 1, 2)
    for bad in ("step-12-a0001-g0001", "latest", "step-000000012-a0001-g0001.tmp", ""):
        assert parse_checkpoint_name(bad) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
keys = st.sampled_from(["version", "run", "step", "attempt", "shards", "path", "tokens", "position"])


@given(st.dictionaries(keys, json_values, max_size=8) | json_values)
def test_a_fuzzed_manifest_is_an_error_not_a_crash(value: object) -> None:
    try:
        decode(json.dumps(value).encode())
    except ManifestError:
        return
    raise AssertionError("accepted")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_manifest_are_an_error(data: bytes) -> None:
    with pytest.raises(ManifestError):
        decode(data)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "", "a/../../b", "a\0b"])
def test_a_shard_outside_the_checkpoint_is_refused(path: str) -> None:
    value = {
        "version": 1, "run": "r", "step": 1, "attempt": 1, "generation": 1, "world_size": 1, "tokens": 0,
        "position": 0, "shards": [{"path": path, "size": 1, "xxh3": "0"}],
    }  # fmt: skip
    with pytest.raises(ManifestError, match="outside"):
        decode(json.dumps(value).encode())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One valid checkpoint, whose manifest the tests below replace."""
    return _save(RunDir(path=tmp_path_factory.mktemp("fuzz") / "r"), 10)


def _as_written(directory: Path) -> bytes:
    return Manifest(
        run="r",
        step=10,
        attempt=1,
        generation=1,
        world_size=1,
        tokens=100,
        position=20,
        shards=(Shard(path="shard-0", size=18, xxh3=digest_file(directory / "shard-0")),),
    ).encode()


def _edited(value: object, path: list[int], new: object) -> object:
    """The value with one place in it replaced; the numbers choose the way down."""
    if not path or not isinstance(value, (dict, list)) or not value:
        return new
    if isinstance(value, dict):
        key = sorted(value)[path[0] % len(value)]
        return {**value, key: _edited(value[key], path[1:], new)}
    at = path[0] % len(value)
    return [_edited(item, path[1:], new) if number == at else item for number, item in enumerate(value)]


odd_texts = st.sampled_from(
    ["\ud800", "a" * 5000, ".", "shard-0/x", "MANIFEST.json", "./shard-0", "é", "\x00"]
)


@given(st.lists(st.integers(0, 20), max_size=4), json_values | odd_texts, st.booleans())
def test_a_manifest_with_one_place_changed_is_never_a_crash_and_never_an_invalid_load(
    whole: Path, path: list[int], new: object, old_format: bool
) -> None:
    """In the older format, which had no checksum of its own, it may still count; then every file it lists is there."""
    value = json.loads(_as_written(whole))
    if old_format:
        value = {key: item for key, item in value.items() if key != "xxh3"} | {"version": 1}
    changed = _edited(value, path, new)
    (whole / NAME).write_bytes(json.dumps(changed).encode())
    found = examine(whole, deep=True)
    if not old_format:
        assert found.valid == (json.dumps(changed, sort_keys=True) == json.dumps(value, sort_keys=True))
    if found.valid:
        assert found.manifest is not None
        assert (found.manifest.step, found.manifest.attempt, found.manifest.generation) == (10, 1, 1)
        for shard in found.manifest.shards:
            assert digest_file(whole / shard.path) == shard.xxh3


@given(st.integers(0, 10_000), st.integers(0, 7), st.integers(0, 10_000))
def test_a_bit_turned_or_an_end_cut_off_is_seen(whole: Path, at: int, bit: int, length: int) -> None:
    data = bytearray(_as_written(whole))
    data[at % len(data)] ^= 1 << bit
    (whole / NAME).write_bytes(data)
    found = examine(whole, deep=True)
    before = json.loads(_as_written(whole))
    assert found.valid == _says(bytes(data), before), "only a change of the white space goes unseen"
    cut = bytes(data)[: length % len(data)]
    (whole / NAME).write_bytes(cut)
    assert examine(whole, deep=True).valid == _says(cut, before), "the newline at the end is white space too"


def _says(data: bytes, value: object) -> bool:
    try:
        return bool(json.loads(data) == value)
    except ValueError:
        return False


@pytest.mark.parametrize("kind", ["directory", "fifo", "loop", "long name"])
def test_a_shard_that_is_no_file_does_not_count(run: RunDir, kind: str) -> None:
    directory = _save(run, 10)
    shard = directory / "shard-0"
    shard.unlink()
    if kind == "directory":
        shard.mkdir()
    elif kind == "fifo":
        os.mkfifo(shard)
    elif kind == "loop":
        shard.symlink_to(shard)
    else:
        value = json.loads(_as_written_with("s" * 300))
        (directory / NAME).write_bytes(json.dumps(value).encode())
    for deep in (False, True):
        assert not examine(directory, deep=deep).valid


def _as_written_with(path: str) -> bytes:
    shard = Shard(path=path, size=18, xxh3="0")
    return Manifest(
        run="tiny-1", step=10, attempt=1, generation=1, world_size=1, tokens=0, position=0, shards=(shard,)
    ).encode()


def test_removed_is_gone_and_a_second_removal_is_an_error(run: RunDir) -> None:
    directory = _save(run, 10)
    remove(directory)
    assert not directory.exists()
    with pytest.raises(OSError, match="No such file"):
        remove(directory)


def test_what_a_manifest_of_the_older_format_lacks_has_defaults() -> None:
    value = json.loads(_as_written_with("x"))
    old = {
        key: item
        for key, item in value.items()
        if key not in {"xxh3", "code", "skip_windows", "saved_at", "val_loss"}
    }
    found = decode(json.dumps(old | {"version": 1}).encode())
    assert (found.code, found.skip_windows, found.saved_at, found.val_loss) == ("", (), 0.0, None)
