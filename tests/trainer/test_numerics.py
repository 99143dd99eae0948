"""Numbers that go wrong: what each policy does with them, on real ranks where the numbers are, else as a unit."""

import math
import types

import pytest

from contract import manifest
from contract.config.numerics import Numerics
from contract.sampling import Taken
from trainer.engine import loss_scale, lower_scale
from trainer.errors import NumericsError
from trainer.guard import Fault, FaultKind, Guard
from trainer.norms import Watch
from trainer.step import _AT_MINIMUM, _update

POISON = """
import os, trainer.preload, trainer.step as step
plain = step.summed_loss
calls = 0
def poisoned(engine, batch):
    global calls
    loss = plain(engine, batch)
    if os.environ["RANK"] == "1" and loss.requires_grad:
        calls += 1
        if calls in {calls}:
            {what}
    return loss
step.summed_loss = poisoned
"""
LOSS = "loss = loss * float('nan')"
GRADIENT = "loss.register_hook(lambda g: g * float('nan'))"
SPIKE = "loss = loss * 1000"
STEADY = {"kind": "constant", "warmup": 0}
DROPPING = {"on_nan": "skip", "spike_factor": 20.0, "spike_window": 8}
KINDS = [("bf16", 1), ("bf16", 2), ("bf16", 3), ("fp32", 0), ("fp32", 2)]


def poison(what, *calls):
    """A fault in rank 1's micro-batches with these numbers (two a step, from 1)."""
    return POISON.replace("{calls}", str(set(calls))).replace("{what}", what)


def settings(dtype, stage, **numerics):
    return {
        "precision": {"dtype": dtype},
        "deepspeed": {"zero_stage": stage},
        "schedule": STEADY,
        "numerics": numerics,
        "data": {"evaluate_interval_steps": 0},
    }


@pytest.mark.train
@pytest.mark.parametrize(("dtype", "stage"), KINDS)
@pytest.mark.parametrize("what", [LOSS, GRADIENT, SPIKE])
def test_a_dropped_step_leaves_the_weights_as_if_its_data_had_not_been_there(
    bench, jumped, dtype, stage, what
):
    compare_with_jumped(bench, jumped, settings(dtype, stage, **DROPPING), what)


@pytest.mark.train
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("what", [LOSS, GRADIENT, SPIKE])
def test_the_same_with_the_update_on_the_host(bench, jumped, stage, what):
    sections = settings("bf16", stage, **DROPPING)
    sections["deepspeed"]["offload_optimizer"] = True
    compare_with_jumped(bench, jumped, sections, what)


@pytest.fixture(scope="module")
def jumped():
    """Losses of runs that jump the data, by their settings; each made once."""
    return {}


def compare_with_jumped(bench, jumped, sections, what):
    """Bit by bit the run that jumps the same data: nothing of the bad gradient stays in any buffer."""
    run = bench("dropped", **sections)
    text = run.start(CIUIC_TEST_BEFORE=poison(what, 9))
    assert text.codes() == [0, 0], text.text()
    rows = list(run.merged().values())
    assert [row["step"] for row in rows if "dropped" in row] == [5], text.text()
    assert ("spike" in rows[4]["dropped"]) == (what == SPIKE)
    assert ("rank 1" in rows[4]["dropped"]) == (what == LOSS)
    if str(sections) not in jumped:
        calm = bench("jumped", **sections, run={"steps": 7})
        calm.train(CIUIC_SKIP_WINDOWS="[[32, 40]]")
        jumped[str(sections)] = calm.losses()
    del rows[4]
    assert [row["loss"] for row in rows] == jumped[str(sections)]


@pytest.mark.train
def test_too_many_dropped_steps_in_a_row_end_it(bench):
    run = bench(**settings("bf16", 2, on_nan="skip", skip_limit=3))
    generation = run.start(CIUIC_TEST_BEFORE=poison(LOSS, 5, 7, 9))
    assert generation.codes() == [65, 65], generation.text()
    told = generation.pages[0].read().exception["text"]
    assert "3 steps in a row were dropped" in told
    assert "at step 5, sampler positions [16, 40)" in told


BROKEN_WEIGHTS = """
import os, trainer.preload, trainer.loop as loop
look = loop.weights_are_finite
steps = 0
def broken(engine):
    global steps
    steps += 1
    if steps == 4 and os.environ["RANK"] == "1":
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
            for tensor in getattr(engine.optimizer, name, [])[:1]:
                tensor.data[0] = float("nan")
    return look(engine)
loop.weights_are_finite = broken
"""


@pytest.mark.train
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("interval", [1, 3])
def test_weights_that_are_not_finite_neither_train_on_nor_last(bench, stage, interval):
    run = bench(**settings("bf16", stage, on_nan="skip"), checkpoint={"interval_steps": interval})
    generation = run.start(CIUIC_TEST_BEFORE=BROKEN_WEIGHTS)
    assert generation.codes() == [65, 65], generation.text()
    for page in generation.pages:
        told = page.read().exception["text"]
        assert (
            "the weights are not finite on rank 1 since the update at step 4, sampler positions [24, 32)"
            in told
        )
    assert manifest.directories(run.run)[0].name.startswith("step-000000003")


@pytest.mark.train
def test_a_tighter_limit_for_the_embedding_is_the_same_however_zero_divides(bench):
    def losses(name, stage, limit, *, host=False):
        sections = settings("fp32", stage, embedding_clipping=limit)
        sections["deepspeed"]["offload_optimizer"] = host
        run = bench(name, **sections)
        run.train()
        return run.losses()

    plain = losses("plain", 0, 0.01)
    for stage, host in ((1, False), (2, True), (3, False)):
        assert losses(f"{stage}-{host}", stage, 0.01, host=host) == pytest.approx(plain, rel=1e-5), (
            stage,
            host,
        )
    assert losses("none", 2, 0.0) != pytest.approx(plain, rel=1e-5)


@pytest.mark.train
@pytest.mark.parametrize("stage", [0, 3])
def test_a_clipping_limit_that_is_set_while_it_trains_counts_like_one_of_the_configuration(bench, stage):
    def losses(name, limit, hot):
        sections = settings("fp32", stage)
        run = bench(name, **sections, optimizer={"gradient_clipping": limit}, run={"steps": 5})
        generation = run.start()
        generation.pages[0].give_orders({"hot": hot, "orders": []})
        assert generation.codes() == [0, 0], generation.text()
        return run.losses()

    tight = losses("configured", 0.01, {})
    assert losses("set", 1.0, {"optimizer.gradient_clipping": 0.01}) == tight
    assert losses("lifted", 0.01, {"optimizer.gradient_clipping": 0.0}) != tight


NAN = Fault(kind=FaultKind.NOT_FINITE, text="the loss is not finite")
SCALED = Fault(kind=FaultKind.SCALING, text="the gradient is not finite with loss scale 65536")
SPIKED = Fault(kind=FaultKind.SPIKE, text="a spike")


def taken(start: int) -> Taken:
    return Taken(positions=(start,), start=start, end=start + 8)


@pytest.mark.parametrize("policy", ["roll-back", "stop"])
def test_these_policies_end_at_the_first(policy):
    guard = Guard(Numerics(on_nan=policy))
    with pytest.raises(NumericsError, match=r"at step 5, sampler positions \[32, 40\)"):
        guard.drop(NAN, taken(32), step=4)


@pytest.mark.parametrize("policy", ["roll-back", "skip", "lower-scale", "stop"])
def test_the_search_for_a_loss_scale_is_nobodys_policy(policy):
    guard = Guard(Numerics(on_nan=policy, skip_limit=2))
    for step in range(39):
        guard.drop(SCALED, taken(step * 8), step=step)
    with pytest.raises(
        NumericsError, match=r"40 steps in a row .* loss scale 65536 at step 40, .* \[0, 320\)"
    ):
        guard.drop(SCALED, taken(312), step=39)


@pytest.mark.parametrize("fault", [NAN, SPIKED])
def test_only_steps_in_a_row_count(fault):
    guard = Guard(Numerics(on_nan="skip", skip_limit=3))
    for step in range(20):
        guard.drop(fault, taken(step * 8), step=step) if step % 3 else guard.accept(1.0)
    guard.accept(1.0)
    guard.drop(fault, taken(200), step=20)
    kept = Guard(Numerics(on_nan="skip", skip_limit=3))
    kept.restore(guard.state())  # a restart in between does not forgive
    kept.drop(fault, taken(208), step=21)
    with pytest.raises(NumericsError, match=r"\[200, 224\)"):
        kept.drop(fault, taken(216), step=22)


def test_the_limit_of_the_norm_is_a_multiple_of_the_usual():
    guard = Guard(Numerics(spike_factor=10, spike_window=16))
    for number in range(3):
        guard.accept(1.0 + number)
        assert guard.norm_limit() == math.inf
    guard.accept(100.0)
    assert guard.norm_limit() == 10 * 2.5
    again = Guard(Numerics(spike_factor=10, spike_window=16))
    again.restore(guard.state())
    assert again.norm_limit() == 25
    again.restore({})
    assert again.norm_limit() == math.inf


class Scaled:
    """An engine under fp16, which this CPU does not have: DeepSpeed's own scaler around steps that overflow."""

    def __init__(self, scaler) -> None:
        self.optimizer = types.SimpleNamespace(loss_scaler=scaler)

    def step(self) -> None:
        self.optimizer.loss_scaler.update_scale(overflow=True)

    def was_step_applied(self) -> bool:
        return False


def scale_of(engine):
    engine.optimizer.loss_scale = engine.optimizer.loss_scaler.loss_scale
    return loss_scale(engine)


def test_an_overflow_streak_goes_down_to_the_smallest_scale_and_ends_there(monkeypatch):
    from deepspeed.runtime.fp16 import loss_scaler

    monkeypatch.setattr(loss_scaler.dist, "get_rank", lambda: 1)
    scaler = loss_scaler.DynamicLossScaler(
        2.0**16, scale_window=1000, min_scale=1, delayed_shift=2, consecutive_hysteresis=False
    )
    engine, scales = Scaled(scaler), []
    while scale_of(engine) > 1:
        scales.append(scale_of(engine))
        assert _update(engine, Watch()).kind is FaultKind.SCALING
    with pytest.raises(NumericsError, match="even with the smallest loss scale"):
        _update(engine, Watch())
    assert scales[0] == 2.0**16
    assert scales[-1] == 2
    assert sorted(scales, reverse=True) == scales
    assert len(scales) < 40
    assert "minimum" in _AT_MINIMUM


def test_a_fixed_loss_scale_is_halved_and_a_dynamic_one_left_to_deepspeed():
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler

    fixed = Scaled(LossScaler(scale=8))
    for wanted in (4, 2, 1, 1):
        lower_scale(fixed)
        assert scale_of(fixed) == wanted
    dynamic = Scaled(DynamicLossScaler(8, 1000, 1, 2, False))
    lower_scale(dynamic)
    assert scale_of(dynamic) == 8
    lower_scale(types.SimpleNamespace(optimizer=object()))  # nothing to lower


def test_lower_scale_without_a_scale_is_a_contradiction(tmp_path):
    from contract.config import ConfigError, parse

    with pytest.raises(ConfigError, match="bf16 has none; use skip"):
        parse({"run": {"steps": 1}, "numerics": {"on_nan": "lower-scale"}}, source="x", bases=[tmp_path])
