"""Recovered equals uninterrupted, with real DeepSpeed processes on CPU. Losses are compared bit by bit."""

import json
import signal

import numpy as np
import pytest
import torch

from contract import manifest
from contract.states import Phase

pytestmark = pytest.mark.train


def kill(generation):
    """What the agent does when a rank died: the rest is killed too."""
    generation.signal(signal.SIGKILL)
    return generation.codes()


@pytest.fixture(scope="module")
def known():
    """What `reference` has found."""
    return []


@pytest.fixture
def reference(bench, known):
    """Losses of the same run without any fault; made once."""
    if not known:
        whole = bench("reference")
        whole.train()
        known.extend(whole.losses())
    return known


@pytest.mark.parametrize(
    ("world_size", "dtype", "stage", "update"),
    [
        (2, "bf16", 2, "adamw"),
        (2, "fp32", 2, "muon"),
        (1, "bf16", 1, "adamw"),
        (2, "bf16", 3, "muon"),
        (2, "fp32", 0, "adamw"),
        (2, "bf16", 3, "apart"),
    ],
)
def test_stopped_and_resumed_equals_uninterrupted(bench, world_size, dtype, stage, update):
    settings = {
        "run": {"steps": 12},
        "precision": {"dtype": dtype},
        "deepspeed": {"zero_stage": stage, "expert_parallel": 2 if update == "apart" else 1},
        "optimizer": {"name": "muon" if update == "muon" else "adamw"},
        "numerics": {"spike_factor": 50.0},
        "schedule": {"warmup": 4, "adaptive_from": 0.25, "adaptive_smoothing": 0.1},
    }
    whole = bench("whole", world_size=world_size, **settings)
    whole.extra = {"CIUIC_TEST_BEFORE": DRAWING}
    whole.train()
    parts = bench("parts", world_size=world_size, **settings)
    parts.extra = whole.extra
    first = parts.start()
    first.until(lambda page: page.step >= 6)
    first.signal(signal.SIGUSR1, ranks=[world_size - 1])
    assert first.codes() == [75] * world_size, first.text()
    parts.train()
    assert parts.steps(2)[0]["step"] == parts.steps(1)[-1]["step"] + 1
    assert len(whole.losses()) == 12
    assert all(line["grad_norm"] > 0 for line in whole.steps(1))
    assert parts.losses() == whole.losses()
    told = ("val_loss", "lr", "lr_embedding", "grad_norm")
    rows = [[[line.get(key) for key in told] for line in run.merged().values()] for run in (parts, whole)]
    assert rows[0] == rows[1]
    assert whole.merged()[1]["lr_embedding"] > whole.merged()[1]["lr"] > 0
    # Nor does anything else tell the two: a state that a resume forgot would.
    last, same = (manifest.directories(run.run)[0] for run in (whole, parts))
    for path in sorted(last.glob("*.pt")):
        assert_same(*(torch.load(place / path.name, weights_only=False) for place in (last, same)), path.name)
    kept = torch.load(whole.run.checkpoint(9, 1, 1) / "rank-00000.pt", weights_only=False)["kept"]
    assert kept["guard"]["norms"]
    assert kept["rates"]["ahead"] != 0
    assert kept["batch"]["plan"]


# Every generator has its part in the loss, on each rank from a place of its own.
DRAWING = """
import os, random, numpy, torch, trainer.preload, trainer.step as step
rank = int(os.environ["RANK"])
random.seed(rank)
numpy.random.seed(rank)
plain = step.summed_loss
def drawn(engine, batch):
    chances = [random.random(), numpy.random.rand(), *torch.rand(1 + rank).tolist()]
    return plain(engine, batch) * (1 + sum(chances) / 100)
step.summed_loss = drawn
"""


def assert_same(one, other, where):
    """Bit by bit, however deep."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where} {key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where} {number}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other), where
    elif hasattr(one, "__dict__"):
        assert_same(vars(one), vars(other), where)
    else:
        assert one == other, where


def test_killed_rank(bench, reference):
    run = bench()
    first = run.start()
    first.until(lambda page: page.step >= 5)
    first.signal(signal.SIGKILL, ranks=[1])
    assert kill(first)[1] == -signal.SIGKILL
    second = run.train()
    assert "starting from step-000000003-a0001-g0001" in second.text()
    assert run.losses() == reference


def test_killed_before_the_first_step_and_right_after_the_resume(bench, reference):
    run = bench()
    kill(run.start())
    first = run.start()
    first.until(lambda page: page.step >= 4)
    kill(first)
    resumed = run.start()
    resumed.until(lambda page: page.phase is Phase.LOAD)
    kill(resumed)
    run.train()
    assert run.losses() == reference


IN_A_SHARD = """
import os, signal
import trainer.preload
from trainer import shards
write = shards.write_shard
def dying(directory, name, fill, moved):
    if os.environ["RANK"] == "1" and "step-000000006" in directory.name:
        (directory / name).write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    return write(directory, name, fill, moved)
shards.write_shard = dying
"""
BEFORE_THE_MANIFEST = """
import os, signal
from contract import manifest
publish = manifest.publish
def dying(directory, content):
    if content.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    publish(directory, content)
manifest.publish = dying
"""


@pytest.mark.parametrize(("fault", "rank"), [(IN_A_SHARD, 1), (BEFORE_THE_MANIFEST, 0)])
def test_killed_in_the_middle_of_a_save(bench, reference, fault, rank):
    run = bench()
    first = run.start(CIUIC_TEST_BEFORE=fault)
    assert run.warm.ask(wait=[first.pids[rank]]) == [-signal.SIGKILL]
    first.signal(signal.SIGKILL, ranks=[1 - rank])
    run.warm.ask(wait=[first.pids[1 - rank]])
    assert run.run.checkpoint(6, 1, 1).is_dir()
    second = run.train()
    assert "step-000000006-a0001-g0001 skipped: no manifest" in second.text()
    assert "starting from step-000000003-a0001-g0001" in second.text()
    assert run.losses() == reference


def damage(directory, how):
    shard = max(directory.glob("*.pt"), key=lambda path: path.stat().st_size)
    if how == "truncated":
        shard.write_bytes(shard.read_bytes()[:-7])
    elif how == "flipped":
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    elif how == "missing":
        shard.unlink()
    else:
        (directory / manifest.NAME).unlink()


def test_damaged_checkpoints_are_skipped_with_the_reason(bench):
    run = bench(checkpoint={"interval_steps": 1, "keep_last": 9})
    run.train()
    for step, how in ((8, "truncated"), (7, "flipped"), (6, "missing"), (5, "no manifest")):
        damage(run.run.checkpoint(step, 1, 1), how)
    before = run.losses()
    text = run.train().text()
    assert "step-000000008-a0001-g0001 skipped: " in text
    assert "bytes, the manifest says" in text
    assert "another checksum than the manifest says" in text
    assert "is missing" in text
    assert "no manifest: the save did not finish" in text
    assert "starting from step-000000004-a0001-g0001" in text
    assert run.losses() == before


def test_bounds_choose_an_older_checkpoint_and_make_the_newer_ones_count_no_more(bench):
    run = bench(checkpoint={"interval_steps": 2, "keep_last": 9})
    run.train()
    before = run.losses()
    text = run.train(CIUIC_MAX_STEP="5").text()
    assert "starting from step-000000004-a0001-g0001" in text
    record = json.loads(run.run.attempt(1).resume(2).read_text())
    assert (record["step"], record["generation"]) == (4, 2)
    # 6 and 8 of generation 1 are older than the roll-back; those of generation 2 count.
    assert "starting from step-000000008-a0001-g0002" in run.train().text()
    assert run.losses() == before


def test_expected_checkpoint_and_none_valid(bench):
    run = bench()
    run.train()
    for directory in manifest.directories(run.run):
        damage(directory, "truncated")
    generation = run.start(CIUIC_MIN_STEP="1")
    assert generation.codes() == [77, 77]
    for page in generation.pages:
        assert "no valid checkpoint" in page.read().exception["text"]
    assert not run.run.attempt(1).resume(2).exists()


def test_a_generation_that_was_started_before_is_fenced(bench):
    run = bench()
    run.train()
    generation = run.start(generation=1)
    assert generation.codes() == [77, 77]
    assert "fenced" in generation.pages[1].read().exception["text"]


def test_vanished_run_directory(bench):
    run = bench()
    run.extra = {"CIUIC_RUN_DIR": str(run.run.path / "gone")}
    assert run.start().codes() == [77, 77]
