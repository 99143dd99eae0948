"""The controller by enumeration and against a modelled device; nothing here trains."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.config.batch import Batch
from trainer.batch.controller import Figures, State, after_oom, after_step
from trainer.batch.plan import Plan, configured

BATCH = {"global_batch_size": 16, "micro_batch_size": 2}


def wanted(adaptive, **keys):
    return Batch(**{**BATCH, "adaptive": adaptive, "cooldown_steps": 0, **keys})


def begin(batch, ranks=2):
    return State(plan=configured(batch, ranks))


def run(state, batch, device, steps):
    """All plans over so many steps; `device(plan)` gives the figures of all ranks."""
    plans = [state.plan]
    for _ in range(steps):
        state = after_step(state, device(state.plan), batch).state
        plans.append(state.plan)
    return plans


def same(busy, memory, ranks=2, **keys):
    return lambda _plan: [Figures(busy=busy, memory=memory, **keys)] * ranks


def micro(device):
    """A device whose memory is half full without data and grows by 5 % a sample; busier with larger portions."""
    return lambda plan: [
        Figures(busy=min(1.0, 0.2 + 0.1 * plan.micro_batch), memory=0.4 + 0.05 * plan.micro_batch)
        for _ in plan.samples
    ]


MODES = ["grow", "fixed-global-batch", "balance"]


@pytest.mark.parametrize("mode", [*MODES, "off"])
def test_what_was_not_measured_changes_nothing(mode):
    batch = wanted(mode)
    plans = run(begin(batch), batch, same(None, None), 50)
    assert set(plans) == {configured(batch, 2)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("busy", [0.1, 0.59, 0.6, 0.9, None])
@pytest.mark.parametrize("memory", [0.1, 0.7, 0.85, 0.95, None])
@pytest.mark.parametrize("times", [(1, 1), (1, 2), (5, 1), None])
def test_constant_figures_settle_and_stay_in_bounds(mode, busy, memory, times):
    batch = wanted(mode, max_accumulation_steps=9, max_micro_batch_size=8)
    figures = [Figures(busy=busy, memory=memory, sample_s=times and times[rank]) for rank in range(2)]
    plans = run(begin(batch), batch, lambda _: figures, 120)
    assert len(set(plans[-40:])) == 1
    changed = [plan for plan, _ in itertools.groupby(plans)]
    assert len(changed) == len(set(changed)), "a plan came back: it swings"
    for plan in plans:
        assert 1 <= plan.micro_batch <= 8
        assert 1 <= plan.micro_steps <= max(9, *plan.samples)
        assert all(count >= plan.micro_steps for count in plan.samples)
        if mode != "grow":
            assert plan.global_batch == 16


def test_grow_is_the_rule_of_the_source():
    """Under 60 % three times running and memory to spare: one accumulation step more. Else, when memory is short: less."""
    batch = wanted("grow")
    plans = run(begin(batch), batch, same(0.5, 0.5), 3)
    assert [plan.micro_steps for plan in plans] == [4, 4, 4, 5]
    assert [plan.global_batch for plan in plans] == [16, 16, 16, 20]
    assert [p.micro_steps for p in run(begin(batch), batch, same(0.5, 0.95), 9)][-1] == 1
    assert [p.micro_steps for p in run(begin(batch), batch, same(0.6, 0.5), 9)][-1] == 4, (
        "60 % is not under 60 %"
    )
    assert [p.micro_steps for p in run(begin(batch), batch, same(0.5, 0.85), 9)][-1] == 4, "no headroom"


def test_grow_needs_the_three_steps_running():
    batch = wanted("grow")
    state = begin(batch)
    for busy in [0.5, 0.5, 0.7] * 5:
        state = after_step(state, [Figures(busy=busy, memory=0.5)] * 2, batch).state
    assert state.plan.micro_steps == 4


def test_fixed_global_batch_widens_until_the_device_is_busy_and_no_further():
    batch = Batch(
        global_batch_size=64,
        micro_batch_size=1,
        adaptive="fixed-global-batch",
        cooldown_steps=2,
        utilization_low=0.8,
    )
    plans = run(begin(batch), batch, micro(None), 60)
    assert {plan.global_batch for plan in plans} == {64}
    last = plans[-1]
    assert 0.2 + 0.1 * last.micro_batch >= 0.8
    assert 0.4 + 0.05 * last.micro_batch < 0.92


def test_a_size_that_was_too_much_is_not_tried_again():
    batch = wanted("fixed-global-batch", micro_batch_size=4)
    state = begin(batch)
    decision = after_oom(state, [1], batch)
    assert "out of memory on rank 1 with micro-batch 4" in decision.reason
    assert decision.state.plan.micro_batch == 2
    assert decision.state.plan.global_batch == 16
    plans = run(decision.state, batch, same(0.1, 0.2), 40)
    assert max(plan.micro_batch for plan in plans) == 3


def test_the_smallest_portions_cannot_become_smaller():
    batch = wanted("grow", micro_batch_size=1)
    assert after_oom(begin(batch), [0], batch) is None


def test_oom_of_a_balanced_plan_always_makes_the_largest_portion_smaller():
    batch = wanted("balance")
    for counts in [(15, 1), (12, 4), (8, 8), (1, 15)]:
        state = State(plan=Plan(samples=counts, micro_steps=1))
        while (decision := after_oom(state, [0], batch)) is not None:
            assert decision.state.plan.micro_batch < state.plan.micro_batch
            assert decision.state.plan.global_batch == 16
            state = decision.state
        assert state.plan.micro_batch == 1


@pytest.mark.parametrize(("times", "shares"), [((1, 3), (12, 4)), ((1, 1), (8, 8)), ((3, 1), (4, 12))])
def test_balance_gives_in_proportion_to_speed(times, shares):
    batch = wanted("balance")
    figures = [Figures(sample_s=its) for its in times]
    plans = run(begin(batch), batch, lambda _: figures, 40)
    assert plans[-1].samples == shares
    assert {plan.micro_steps for plan in plans} == {4}


def test_balance_says_who_is_slow():
    batch = wanted("balance", patience=1)
    decision = after_step(begin(batch), [Figures(sample_s=1), Figures(sample_s=2)], batch)
    assert "rank 1 needs 2.0 times as long for a sample" in decision.reason
    assert "16 samples in 4 micro-steps" in decision.reason


def test_a_sentence_about_a_plan_adds_up():
    assert str(Plan(samples=(8, 8), micro_steps=2)) == "16 samples in 2 micro-steps of 4 a rank"
    assert str(Plan(samples=(10, 6), micro_steps=2)) == "16 samples in 2 micro-steps of 5 3 a rank"
    assert str(Plan(samples=(11, 5), micro_steps=2)) == "16 samples in 2 micro-steps, 11 5 a rank"


def test_balance_of_equally_fast_ranks_accuses_none_of_being_slow():
    batch = wanted("balance", patience=1)
    uneven = replace(begin(batch), plan=Plan(samples=(12, 4), micro_steps=4))
    decision = after_step(uneven, [Figures(sample_s=1), Figures(sample_s=1.01)], batch)
    assert "all ranks are equally fast, and rank 0 has 12 samples of 16" in decision.reason


def test_balance_does_not_follow_noise():
    batch, rng = wanted("balance", global_batch_size=64), random.Random(1)
    figures = lambda _: [Figures(sample_s=rng.gauss(1, 0.03)) for _ in range(4)]  # noqa: E731
    plans = run(begin(batch, ranks=4), batch, figures, 300)
    assert len(set(plans)) == 1


def test_after_a_change_it_rests():
    batch = wanted("grow", cooldown_steps=5)
    steps = [plan.micro_steps for plan in run(begin(batch), batch, same(0.1, 0.1), 30)]
    changes = [index for index in range(1, len(steps)) if steps[index] != steps[index - 1]]
    assert min(b - a for a, b in itertools.pairwise(changes)) >= 5


figures = st.builds(
    Figures,
    busy=st.none() | st.floats(0, 1),
    memory=st.none() | st.floats(0, 1.2),
    sample_s=st.none() | st.floats(1e-6, 1e3),
)


@settings(max_examples=300, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    ranks=st.integers(1, 5),
    accumulation=st.integers(1, 6),
    size=st.integers(1, 6),
    history=st.lists(st.lists(figures, min_size=5, max_size=5) | st.just("oom"), max_size=60),
)
def test_whatever_is_measured_the_plan_can_be_trained(mode, ranks, accumulation, size, history):
    whole = ranks * accumulation * size
    batch = Batch(
        global_batch_size=whole,
        micro_batch_size=size,
        adaptive=mode,
        cooldown_steps=1,
        max_micro_batch_size=8,
    )
    state = State(plan=configured(batch, ranks))
    for measured in history:
        if measured == "oom":
            decision = after_oom(state, [0], batch)
            assert (decision is None) == (state.plan.micro_batch == 1)
            state = decision.state if decision else state
        else:
            state = after_step(state, measured[:ranks], batch).state
        plan = state.plan
        assert Plan.of(plan.state()) == plan
        assert all(count >= plan.micro_steps for count in plan.samples)
        assert plan.micro_batch <= max(8, size)
        if mode != "grow":
            assert plan.global_batch == whole
        taken = sorted(at for rank in range(ranks) for portion in plan.portions(rank) for at in portion)
        assert taken == list(range(plan.global_batch)), "each sample once"
        assert all(portion for rank in range(ranks) for portion in plan.portions(rank)), (
            "no pass without data"
        )
