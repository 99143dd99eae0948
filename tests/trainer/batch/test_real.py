"""Plans on real ranks: the update is that of one process over the union, and no sample is lost or doubled."""

import pytest

from tests.trainer.batch.throttle import slowed

pytestmark = pytest.mark.train

STEADY = {"kind": "constant", "warmup": 0}
# The plan that each rank starts with instead of the configured one.
UNEVEN = """
import trainer.preload, trainer.batch.control as control
from trainer.batch.plan import Plan
control.configured = lambda batch, ranks: Plan(samples={samples}[ranks], micro_steps={micro_steps})
"""
# One rank has no memory in this pass (counted from 1 over forward passes with a gradient).
SHORT = """
import os, trainer.preload, trainer.step as step
plain, calls = step.summed_loss, 0
def short(engine, batch):
    global calls
    loss = plain(engine, batch)
    if loss.requires_grad:
        calls += 1
        if calls == {call} and os.environ["RANK"] == "{rank}":
            {what}
    return loss
step.summed_loss = short
"""
FORWARD = (
    "raise RuntimeError('[enforce fail] DefaultCPUAllocator: can\\'t allocate memory: you tried to allocate')"
)
BACKWARD = "loss.register_hook(lambda g: (_ for _ in ()).throw(RuntimeError('DefaultCPUAllocator: can\\'t allocate memory')))"


def settings(stage, dtype="fp32", **batch):
    return {
        "precision": {"dtype": dtype},
        "deepspeed": {"zero_stage": stage},
        "schedule": STEADY,
        "optimizer": {"gradient_clipping": 0.5},
        "batch": batch,
        "data": {"evaluate_interval_steps": 0},
        "checkpoint": {"interval_steps": 100},
        "numerics": {"spike_factor": 0.0},
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Of runs to compare with, filled on demand: (losses and norms) by samples a step, losses by (stage, dtype)."""
    return {}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("samples", "micro_steps"), [((2, 6), 2), ((4, 10, 2), 2), ((3, 5), 3)])
def test_unequal_portions_give_the_update_of_one_process(bench, alone, stage, samples, micro_steps):
    """Losses of eight steps depend on all updates before. float32, so only the order of sums differs: 5e-5 relative."""
    whole = sum(samples)
    if whole not in alone:
        single = bench("alone", world_size=1, **settings(0, global_batch_size=whole, micro_batch_size=whole))
        single.train()
        alone[whole] = [(row["loss"], row["grad_norm"]) for row in single.merged().values()]
    size = {8: 2, 16: 1}[whole]
    ranks = len(samples)
    run = bench(
        "uneven", world_size=ranks, **settings(stage, global_batch_size=size * ranks, micro_batch_size=size)
    )
    run.train(CIUIC_TEST_BEFORE=UNEVEN.format(samples={ranks: samples}, micro_steps=micro_steps))
    found = [(row["loss"], row["grad_norm"]) for row in run.merged().values()]
    assert [row["global_batch"] for row in run.merged().values()] == [whole] * 8
    for mine, theirs in zip(found, alone[whole], strict=True):
        assert mine == pytest.approx(theirs, rel=5e-5)


@pytest.mark.parametrize(("stage", "dtype"), [(0, "fp32"), (1, "fp32"), (1, "bf16")])
@pytest.mark.parametrize("what", [FORWARD, BACKWARD])
def test_out_of_memory_redoes_the_same_samples_in_smaller_portions(bench, alone, stage, dtype, what):
    sections = settings(stage, dtype, adaptive="fixed-global-batch")
    run = bench("short", **sections)
    generation = run.train(CIUIC_TEST_BEFORE=SHORT.format(call=6, rank=1, what=what))
    rows = list(run.merged().values())
    assert [row["positions"] for row in rows] == [[at, at + 8] for at in range(0, 64, 8)]
    assert [row["micro_steps"] for row in rows] == [2, 2, 4, 4, 4, 4, 4, 4]
    assert "out of memory on rank 1 with micro-batch 2" in rows[2]["batch_change"]
    assert "batch: out of memory on rank 1" in generation.text()
    if (stage, dtype) not in alone:
        calm = bench("calm", **settings(stage, dtype))
        calm.train()
        alone[stage, dtype] = calm.losses()
    tolerance = 1e-5 if dtype == "fp32" else 2e-2
    assert [row["loss"] for row in rows] == pytest.approx(alone[stage, dtype], rel=tolerance)


def test_where_a_pass_has_collectives_the_next_start_takes_smaller_portions(bench):
    run = bench(**settings(2, adaptive="fixed-global-batch") | {"checkpoint": {"interval_steps": 1}})
    broken = run.start(CIUIC_TEST_BEFORE=SHORT.format(call=6, rank=1, what=FORWARD))
    broken.until(lambda page: page.exception is not None, rank=1)
    told = broken.pages[1].read().exception
    assert "can't allocate memory" in told["text"]
    assert "micro-batch 2; the next start takes less" in told["text"]
    broken.codes()
    after = run.train()
    assert "an earlier start was out of memory with micro-batch 2" in after.text()
    rows = list(run.merged().values())
    assert [row["positions"] for row in rows] == [[at, at + 8] for at in range(0, 64, 8)]
    done = run.steps(2)[0]["step"] - 1  # what was saved when the rank ran out of memory in the third step
    assert done in {0, 1, 2}
    assert [row["micro_steps"] for row in rows] == [2] * done + [4] * (8 - done)


def test_without_adaptive_control_out_of_memory_ends_the_run_and_says_the_size(bench):
    run = bench(**settings(1))
    broken = run.start(CIUIC_TEST_BEFORE=SHORT.format(call=6, rank=1, what=FORWARD))
    broken.until(lambda page: page.exception is not None, rank=1)
    assert "(micro-batch 2)" in broken.pages[1].read().exception["text"]
    assert 0 not in broken.codes()


def test_a_resume_continues_with_the_plan(bench):
    sections = settings(1, adaptive="fixed-global-batch")
    run = bench(**sections | {"checkpoint": {"interval_steps": 5}, "run": {"steps": 40}})
    first = run.start(CIUIC_TEST_BEFORE=SHORT.format(call=6, rank=0, what=FORWARD))
    first.until(lambda _: any(run.run.checkpoints.glob("step-000000005-*/MANIFEST.json")))
    first.signal(9)
    first.codes()
    run.train()
    rows = run.steps(2)
    assert rows[0]["step"] % 5 == 1
    assert rows[0]["step"] > 5
    assert {row["micro_steps"] for row in rows} == {4}
    assert [row["positions"] for row in run.merged().values()] == [[at, at + 8] for at in range(0, 320, 8)]


def test_balance_gives_a_rank_that_is_slowed_from_outside_fewer_samples(bench):
    run = bench(
        **settings(1, global_batch_size=32, micro_batch_size=4, adaptive="balance", cooldown_steps=4)
        | {"run": {"steps": 60}}
    )
    generation = run.start()
    with slowed(generation.pids[1], 4):
        assert generation.codes() == [0, 0], generation.text()
    rows = list(run.merged().values())
    changes = [row["batch_change"] for row in rows if "batch_change" in row]
    assert changes, generation.text()
    assert "rank 1 needs" in changes[0]
    own, others = map(int, changes[-1].rsplit(" of ", 1)[1].split()[:2])
    assert own > others
    assert {row["global_batch"] for row in rows} == {32}
    assert [row["positions"] for row in rows] == [[at, at + 32] for at in range(0, 60 * 32, 32)]
