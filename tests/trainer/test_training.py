"""What a training process does besides surviving: exit codes, orders, numerics, metrics."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract import manifest
from contract.page import PageReading
from contract.states import Phase

pytestmark = pytest.mark.train

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
POISON = """
import trainer.preload, trainer.step as step, os
plain = step.summed_loss
calls = 0
def poisoned(engine, batch):
    global calls
    loss = plain(engine, batch)
    if os.environ["RANK"] == "1" and loss.requires_grad:
        calls += 1
        if calls == {call}:
            {what}
    return loss
step.summed_loss = poisoned
"""


def test_metrics_and_manifest(bench):
    run = bench()
    run.train()
    lines = run.steps(1)
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert [line["tokens"] for line in lines] == [256 * step for step in range(1, 9)]
    assert [line["positions"] for line in lines] == [[8 * step, 8 * step + 8] for step in range(8)]
    assert [line["step"] for line in lines if "val_loss" in line] == [4, 8]
    assert all(
        math.isfinite(line[key]) for line in lines for key in ("loss", "grad_norm", "lr", "tokens_per_s")
    )
    assert lines[0]["lr"] == pytest.approx(0.003)
    assert lines[0]["lr_embedding"] == pytest.approx(0.003, rel=0.1)
    assert lines[-1]["loss"] < lines[0]["loss"]
    checkpoint = manifest.examine(run.run.checkpoint(8, 1, 1), deep=True)
    assert checkpoint.valid, checkpoint.reason
    assert (checkpoint.manifest.position, checkpoint.manifest.tokens, checkpoint.manifest.world_size) == (
        64,
        2048,
        2,
    )
    written = {path.name for path in checkpoint.path.iterdir()} - {manifest.NAME}
    assert {shard.path for shard in checkpoint.manifest.shards} == written


def test_only_the_newest_checkpoints_are_kept(bench):
    run = bench(checkpoint={"interval_steps": 1, "keep_last": 2})
    run.train()
    assert [path.name for path in manifest.directories(run.run)] == [
        "step-000000008-a0001-g0001",
        "step-000000007-a0001-g0001",
    ]


@pytest.mark.parametrize(("dtype", "stage"), [("bf16", 2), ("fp32", 2), ("fp32", 0)])
@pytest.mark.parametrize(
    "what", ["loss = loss * float('nan')", "loss.register_hook(lambda g: g * float('nan'))"]
)
def test_numbers_that_are_not_finite(bench, dtype, stage, what):
    run = bench(precision={"dtype": dtype}, deepspeed={"zero_stage": stage})
    generation = run.start(CIUIC_TEST_BEFORE=POISON.format(call=9, what=what))
    assert generation.codes() == [65, 65], generation.text()
    text = generation.pages[0].read().exception["text"]
    assert "not finite" in text
    assert "at step 5, sampler positions [32, 40)" in text
    assert ("rank 1" in text) == ("loss = " in what)
    run.train(CIUIC_SKIP_WINDOWS="[[32, 40]]")
    positions = [line["positions"][0] for line in run.merged().values()]
    assert positions == [0, 8, 16, 24, 40, 48, 56, 64]
    assert all(math.isfinite(loss) for loss in run.losses())


def test_an_exception_ends_the_rank_and_reaches_its_page(bench):
    run = bench()
    fault = POISON.format(call=5, what="raise ValueError('a bug at the third step')")
    generation = run.start(CIUIC_TEST_BEFORE=fault)
    generation.warm.ask(wait=generation.pids[1:])
    generation.signal(9, ranks=[0])
    generation.warm.ask(wait=generation.pids[:1])
    reading = generation.pages[1].read()
    assert reading.exception == {"type": "ValueError", "text": "ValueError: a bug at the third step"}
    assert reading.step == 2
    assert "Traceback" in generation.text()


@pytest.mark.parametrize("on_error", ["continue", "stop"])
def test_a_full_disk_on_one_rank_ends_all_together(bench, on_error):
    fault = """
import os, trainer.preload
from trainer import shards
def full(*_):
    raise OSError(28, "No space left on device")
if os.environ["RANK"] == "1":
    shards.write_shard = full
"""
    run = bench(checkpoint={"on_error": on_error})
    generation = run.start(CIUIC_TEST_BEFORE=fault)
    assert generation.codes() == [1, 1], generation.text()
    last = max(line["step"] for line in run.steps(1))
    assert last == 8 if on_error == "continue" else last < 8  # the last save of a run must not fail
    assert "rank 1: OSError: [Errno 28] No space left" in generation.pages[0].read().save_error
    for page in generation.pages:
        assert "rank 1: OSError: [Errno 28] No space left on device" in page.read().exception["text"]
    assert manifest.directories(run.run) == []


def test_checkpoint_on_order(bench):
    run = bench(checkpoint={"interval_steps": 1000}, run={"steps": 12})
    generation = run.start()
    generation.until(lambda page: page.step >= 2)
    generation.pages[0].give_orders({"hot": {}, "orders": [{"id": "a", "kind": "checkpoint"}]})
    assert generation.codes() == [0, 0]
    steps = [path.name for path in manifest.directories(run.run)]
    assert len(steps) == 2
    assert "order a: checkpoint now" in generation.text()


def test_the_division_of_the_batch_does_not_change_the_result(bench):
    exact = {"precision": {"dtype": "fp32"}}
    losses = []
    for name, world_size, micro in (("a", 2, 2), ("b", 2, 4), ("c", 1, 2)):
        run = bench(name, world_size=world_size, **exact, batch={"micro_batch_size": micro})
        run.train()
        losses.append(run.losses())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)


def test_configuration_that_cannot_work(bench):
    run = bench(model={"vocab_size": 100})
    generation = run.start()
    assert generation.codes() == [78, 78]
    assert "vocab_size" in generation.pages[0].read().exception["text"]


def test_the_warm_process_can_be_forked_and_nothing_is_compiled(bench, warm, extensions):
    bench().train()
    assert warm.threads == 1
    assert list(extensions.iterdir()) == []


def test_alone_from_a_recipe(bench, tmp_path):
    recipe = bench("recipe", world_size=1, run={"steps": 2}).run.config
    target = tmp_path / "alone"
    command = [sys.executable, "-P", "-m", "trainer", "--config", str(recipe), "--run-dir", str(target)]
    for generation in (1, 2):
        subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, check=True, capture_output=True, timeout=120
        )
        record = json.loads((target / f"attempts/0001/resume-g{generation:04d}.json").read_text())
        assert record["step"] == (generation - 1) * 2


@pytest.fixture
def endless(bench):
    """A generation that trains until it is ended; its batches have several micro-batches."""
    run = bench(
        run={"steps": 100_000},
        data={"evaluate_interval_steps": 0},
        checkpoint={"interval_steps": 100_000},
        model={"layers": 4, "hidden_size": 64},
        batch={"global_batch_size": 32, "micro_batch_size": 4, "sequence_length": 64},
    )
    generation = run.start()
    generation.until(lambda page: page.step >= 3)
    yield generation
    generation.signal(signal.SIGTERM)
    generation.codes()


def test_the_pages_tell_who_keeps_the_others_waiting(endless):
    """Rank 1 is stopped and let go again and again, as a device that throttles: it works long in its own phases."""
    before = [page.read() for page in endless.pages]
    while endless.pages[0].read().step < before[0].step + 12:
        endless.signal(signal.SIGSTOP, [1])
        time.sleep(0.03)
        endless.signal(signal.SIGCONT, [1])
        time.sleep(0.01)
    after = [page.read() for page in endless.pages]
    own = [
        sum(late.spent[phase] - early.spent[phase] for phase in ("data", "forward"))
        for early, late in zip(before, after, strict=True)
    ]
    assert own[1] > 1.5 * own[0], (before, after)


def test_standing_in_an_agreement_is_waiting_and_no_work(endless):
    """Rank 1 is stopped until rank 0 is found where a step begins, with everything done but for the other."""

    def held() -> PageReading:
        endless.signal(signal.SIGSTOP, [1])
        counter, still_since = -1, time.monotonic()
        while time.monotonic() < still_since + 0.1:  # it stands: nothing moves without the other
            if (seen := endless.pages[0].read()).counter != counter:
                counter, still_since = seen.counter, time.monotonic()
            time.sleep(0.002)
        return seen

    deadline = time.monotonic() + 60
    while (stands := held()).phase is not Phase.FORWARD:
        assert time.monotonic() < deadline, "rank 0 was never found waiting for a step to begin"
        endless.signal(signal.SIGCONT, [1])
        endless.until(lambda page, at=stands.counter: page.counter > at + 3)
    time.sleep(0.4)  # the wait to be measured
    endless.signal(signal.SIGCONT, [1])
    moved = endless.until(lambda page: page.counter > stands.counter + 3)
    waited = moved.spent["wait"] - stands.spent["wait"]
    assert waited > 0.4
    assert moved.spent["forward"] - stands.spent["forward"] < waited
