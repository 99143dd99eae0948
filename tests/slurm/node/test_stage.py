"""Copies on the node's disk: whatever happens to them, to the disk or to the source, the samples are right."""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract import staged
from contract.config.data import INDEX
from contract.sources import FolderSource
from slurm.node import stage as staging
from slurm.node.stage import Stager, in_order_of_use
from trainer.data.prepare import Recipe, prepare
from trainer.data.reader import TokenReader

LENGTH = 50


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """About 12 shards of some 120 KB: two blocks each, the last one not full."""
    folder = tmp_path_factory.mktemp("set")
    numbers = np.random.default_rng(1)
    for name in "abcdef":
        text = " ".join(map(str, numbers.integers(0, 1 << 30, size=14_000)))
        (folder / f"{name}.txt").write_text(text)
    recipe = Recipe(vocab_size=0, validation_share=0.2, shard_tokens=60_000)
    prepare([folder], folder / "data", recipe)
    return folder / "data"


@pytest.fixture
def source(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "source"))


def stager(source, stage, **changes):
    stage.mkdir(exist_ok=True)
    return Stager(source=FolderSource(source), stage=stage, order=staged.shards_of, **changes)


def samples(source, stage=None):
    reader = TokenReader(source, "train", length=LENGTH, stage=stage)
    return reader, np.stack([reader.sample(number) for number in range(0, reader.samples, 7)])


def copies(stage):
    return sorted(path for path in stage.glob("*/*/*") if path.name != "users")


@pytest.fixture
def right(prepared):
    return samples(prepared)[1]


def test_everything_is_copied_and_read_from_there(source, tmp_path, right):
    stage = tmp_path / "stage"
    done = stager(source, stage).turn()
    assert done.complete
    assert done.problem == ""
    assert done.bytes == done.of_bytes == sum(path.stat().st_size for path in source.glob("*.bin"))
    reader, found = samples(source, stage)
    assert (found == right).all()
    assert reader.bytes.from_source == 0


def test_the_reader_waits_for_nothing_and_takes_up_what_arrives(source, tmp_path, right):
    stage = tmp_path / "stage"
    reader, found = samples(source, stage)
    assert (found == right).all()
    assert reader.bytes.from_copies == 0
    stager(source, stage).turn()
    before = reader.bytes.from_source
    assert (reader.sample(0) == right[0]).all()
    assert reader.bytes.from_source == before


def test_killed_at_any_point_it_goes_on(source, tmp_path, right):
    """SIGKILL before each call that changes something on the disk, in a copy of three shards."""
    stage = tmp_path / "stage"
    names = ("train-00000.bin", "train-00001.bin", "train-00003.bin")

    def some(index):
        return [shard for shard in staged.shards_of(index) if shard.file in names]

    for point in range(1, 200):
        shutil.rmtree(stage, ignore_errors=True)
        ended = _killed_at(point, replace(stager(source, stage), order=some))
        assert (samples(source, stage)[1] == right).all(), point
        again = replace(stager(source, stage), order=some).turn()
        assert again.complete, point
        assert [path.name for path in copies(stage)] == sorted(names)
        assert (samples(source, stage)[1] == right).all()
        if ended == 0:
            break
    assert point > 12


def _killed_at(point, one):
    pid = os.fork()
    if pid == 0:
        left = point

        def counted(call):
            def wrapped(*arguments, **named):
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **named)

            return wrapped

        for name in ("open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "close"):
            setattr(os, name, counted(getattr(os, name)))
        one.turn()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_damaged_copy_is_passed_over_removed_and_made_again(source, tmp_path, right):
    stage = tmp_path / "stage"
    one = stager(source, stage)
    one.turn()
    first, second, third, *_ = copies(stage)
    reader = samples(source, stage)[0]
    with first.open("r+b") as file:  # a bit of the data
        file.seek(70_001)
        byte = file.read(1)[0]
        file.seek(70_001)
        file.write(bytes([byte ^ 1]))
    second.write_bytes(second.read_bytes()[:-3])  # cut
    shutil.copyfile(first, third)  # another shard under this name
    found = np.stack([reader.sample(number) for number in range(0, reader.samples, 7)])
    assert (found == right).all()
    assert reader.bytes.from_source > 0
    assert not first.exists()
    assert not second.exists()
    assert one.turn().complete
    reader, found = samples(source, stage)
    assert (found == right).all()
    assert reader.bytes.from_source == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk needs a mount, which needs root")
def test_a_disk_that_fills(source, tmp_path, right):
    stage = tmp_path / "small"
    stage.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(stage)], check=True)
    try:
        one = stager(source, stage)
        done = one.turn()
        assert 0 < done.shards < done.of
        assert "free" in done.problem
        assert (samples(source, stage)[1] == right).all()
        (stage / "other").write_bytes(bytes(100_000))  # somebody else takes what should stay free
        done = one.turn()
        assert done.shards < len(copies(stage)) + 1
        assert (samples(source, stage)[1] == right).all()
        for path in copies(stage):
            path.unlink()
        with pytest.raises(OSError, match="No space"):
            (stage / "other").write_bytes(bytes(1_000_000))
        done = one.turn()
        assert (done.shards, bool(done.problem)) == (0, True)
        assert (samples(source, stage)[1] == right).all()
        (stage / "other").unlink()
        assert one.turn().shards > 0
    finally:
        subprocess.run(["umount", "-l", str(stage)], check=True)


def test_a_full_disk_in_the_middle_of_a_write_leaves_nothing(source, tmp_path, right, monkeypatch):
    """The guard looks before; another process may be quicker."""
    stage = tmp_path / "stage"
    real, written = os.write, 0

    def write(descriptor, data):
        nonlocal written
        written += len(data)
        if written > 250_000:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(staging.os, "write", write)
    done = stager(source, stage).turn()
    monkeypatch.undo()
    assert done.problem == f"the disk of {stage} is full"
    assert len(copies(stage)) == done.shards > 0
    assert (samples(source, stage)[1] == right).all()


def test_an_absent_disk_is_told_and_no_folder_made_in_its_place(source, tmp_path):
    done = Stager(source=FolderSource(source), stage=tmp_path / "gone", order=staged.shards_of).turn()
    assert str(tmp_path / "gone") in done.problem
    assert not (tmp_path / "gone").exists()


def test_the_cap_holds_and_a_lower_one_gives_back(source, tmp_path, right):
    stage = tmp_path / "stage"
    done = stager(source, stage, cap=500_000).turn()
    assert "cap" in done.problem
    assert sum(path.stat().st_size for path in copies(stage)) <= 500_000
    assert done.shards == 4
    stager(source, stage, cap=300_000).turn()
    assert [path.name for path in copies(stage)] == ["train-00000.bin", "train-00001.bin"]
    assert (samples(source, stage)[1] == right).all()


def test_only_what_no_job_uses_makes_room_also_under_a_reader(source, tmp_path, right):
    stage, other = tmp_path / "stage", tmp_path / "other"
    shutil.copytree(source, other)
    index = json.loads((other / INDEX).read_text())
    (other / INDEX).write_text(json.dumps(index | {"documents": "other"}))
    first = stager(source, stage)
    room = sum(staged.whole(shard.size) for shard in staged.shards_of(index))
    assert first.turn().complete
    reader = samples(source, stage)[0]
    second = stager(other, stage, cap=room + 300_000)
    done = second.turn()
    assert done.shards == 2, "the first job is still there"
    assert first.turn().complete
    for descriptor in first._held.values():  # it ends
        os.close(descriptor)
    assert second.turn().complete
    found = np.stack([reader.sample(number) for number in range(0, reader.samples, 7)])
    assert (found == right).all()
    assert reader.bytes.from_source > 0
    assert (samples(other, stage)[1] == right).all()


def test_two_jobs_of_the_same_data_copy_each_shard_once(source, tmp_path, right):
    """Two processes at the same time; the inode tells who made a copy, and nobody makes it twice."""
    stage = tmp_path / "stage"
    stage.mkdir()
    reader, writer = os.pipe()
    jobs = []
    for _ in range(2):
        jobs.append(os.fork())
        if jobs[-1] == 0:
            real = staging._copy

            def copy(source, target, shard, real=real):
                os.write(writer, f"{shard.file}\n".encode())
                real(source, target, shard)

            staging._copy = copy
            code = 0 if stager(source, stage).turn().complete else 1
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as lines:
        made = lines.read().split()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in jobs] == [0, 0]
    assert sorted(made) == sorted(path.name for path in source.glob("*.bin"))
    assert (samples(source, stage)[1] == right).all()


def test_a_source_that_vanishes_half_way(source, tmp_path, right):
    stage = tmp_path / "stage"
    one = stager(source, stage, cap=500_000)
    one.turn()
    reader = TokenReader(source, "train", length=LENGTH, stage=stage)
    gone = tmp_path / "gone"
    source.rename(gone)
    here = 4 * 60_000 // LENGTH - 1
    assert all((reader.sample(number) == right[number // 7]).all() for number in range(0, here, 7))
    with pytest.raises(OSError, match=r"source/train-0000\d\.bin"):
        reader.sample(here + 2)
    assert "source" in one.turn().problem
    gone.rename(source)
    assert (reader.sample((here // 7 + 2) * 7) == right[here // 7 + 2]).all()


def test_a_source_that_is_cut_is_an_error_and_never_a_short_sample(source, tmp_path):
    reader = TokenReader(source, "train", length=LENGTH)
    shard = source / "train-00000.bin"
    os.truncate(shard, 1000)
    assert len(reader.sample(0)) == LENGTH + 1
    with pytest.raises(OSError, match=r"ends after 1000 bytes"):
        reader.sample(9)
    assert "train-00000.bin" in stager(source, tmp_path / "stage").turn().problem


def test_a_wrong_shard_at_the_source_is_named_and_the_others_come(source, tmp_path):
    shard = source / "train-00002.bin"
    data = bytearray(shard.read_bytes())
    data[500] ^= 1
    shard.write_bytes(data)
    done = stager(source, tmp_path / "stage").turn()
    assert "train-00002.bin is not what its index says" in done.problem
    assert done.shards == done.of - 1


def test_the_order_is_that_of_first_use(prepared):
    index = json.loads((prepared / INDEX).read_text())
    counts = [item["tokens"] for item in index["splits"]["train"]["shards"]]
    ends = np.cumsum(counts)
    for position in (0, 1234):
        order = in_order_of_use(index, length=LENGTH, seed=3, position=position)
        assert {shard.file for shard in order} == {shard.file for shard in staged.shards_of(index)}
        from contract.sampling import Sampler

        sampler = Sampler(samples=(sum(counts) - 1) // LENGTH, seed=3)
        seen: list[int] = []
        for at in range(position, position + 200):
            start = sampler.sample(at) * LENGTH
            for shard in np.unique(np.searchsorted(ends, [start, start + LENGTH], side="right")):
                if shard < len(counts) and shard not in seen:
                    seen.append(int(shard))
        assert [shard.file for shard in order[: len(counts)]] == [
            f"train-{number:05d}.bin" for number in seen
        ]


def test_where_the_stage_is():
    assert staged.directory("", {}) is None
    assert staged.directory("$TMPDIR/x", {"TMPDIR": "/tmp"}) == Path("/tmp/x")
    for wrong in ("$NVME", "relative"):
        with pytest.raises(ValueError, match=r"\[node\] stage"):
            staged.directory(wrong, {})
