"""The learning rate against closed forms, group by group, and what adaptive annealing promises."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.config import RunConfig
from contract.config.schedule import Schedule
from contract.schedule import Course, Pace, annealed_at, course_of, pace_after, sampled

PEAK, LAYERS, WARMUP, END = 2.0, 4, 400, 2000


def course(**keys) -> Course:
    schedule = Schedule(**{"unit": "tokens", "warmup": WARMUP, "length": END, **keys})
    return Course(schedule=schedule, peak=PEAK, layers=LAYERS, warmup=WARMUP, end=END)


def test_the_embedding_and_layer_0_start_at_once_and_the_last_layer_comes_last() -> None:
    found = course(kind="constant")
    assert found.groups == ("embedding", "layer-0", "layer-1", "layer-2", "layer-3")
    assert [found.warmup_of(group) for group in range(5)] == [0, 0, 100, 200, 300]
    assert found.rates(1)[:2] == (PEAK, PEAK)
    assert found.rates(50) == (PEAK, PEAK, PEAK * 0.5, PEAK * 0.25, pytest.approx(PEAK / 6))
    assert found.rates(300) == (PEAK,) * 5


def test_without_layers_every_group_has_the_whole_warm_up() -> None:
    found = course(kind="cosine", layerwise=False)
    assert found.rates(100) == (PEAK / 4,) * 5
    assert found.rates(WARMUP) == (PEAK,) * 5


@pytest.mark.parametrize("group", range(LAYERS + 1))
@pytest.mark.parametrize("tokens", [300, 333, 800, 1999, 2000])
def test_closed_forms(group: int, tokens: int) -> None:
    start = max(0, group - 1) * WARMUP / LAYERS
    p = (tokens - start) / (END - start)
    floor = PEAK * 0.1
    wanted = {
        "cosine": floor + (PEAK - floor) * (1 + math.cos(math.pi * p)) / 2,
        "quarter_cosine": floor + (PEAK - floor) * math.cos(math.pi * p / 2),
        "as_printed": PEAK * math.cos(math.pi * (1 - p) / 2),
        "wsd": PEAK if p <= 0.8 else floor + (PEAK - floor) * (1 - p) / 0.2,
        "constant": PEAK,
    }
    for kind, value in wanted.items():
        assert course(kind=kind).rate(group, tokens) == pytest.approx(value), kind


def test_as_printed_is_the_printed_formula_at_its_ends() -> None:
    found = course(kind="as_printed", layerwise=False)
    assert found.rate(0, WARMUP - 1) == pytest.approx(
        PEAK * (WARMUP - 1) / WARMUP
    )  # the linear warm-up before it
    assert found.rate(0, WARMUP) == pytest.approx(0, abs=1e-12)
    assert found.rate(0, END) == pytest.approx(PEAK)


@pytest.mark.parametrize("kind", ["cosine", "quarter_cosine", "wsd"])
def test_past_its_end_the_rate_stays_at_the_floor(kind: str) -> None:
    assert course(kind=kind).rates(END) == pytest.approx((PEAK * 0.1,) * 5)
    assert course(kind=kind).rates(3 * END) == course(kind=kind).rates(END)


def test_a_warm_up_as_long_as_the_run() -> None:
    found = Course(schedule=Schedule(layerwise=False), peak=PEAK, layers=2, warmup=100, end=100)
    assert [found.rate(0, at) for at in (50, 100)] == [PEAK / 2, PEAK]


def test_steps_are_tokens_per_step() -> None:
    def made(**schedule) -> Course:
        batch = {"global_batch_size": 8, "sequence_length": 32}
        value = {"run": {"steps": 50}, "batch": batch, "schedule": schedule, "optimizer": {"lr": 1.0}}
        return course_of(RunConfig.model_validate(value))

    in_steps, in_tokens = made(warmup=3, length=40), made(unit="tokens", warmup=768, length=10240)
    assert (in_steps.warmup, in_steps.end) == (in_tokens.warmup, in_tokens.end) == (768, 10240)
    assert made().end == 50 * 256


def test_the_samples_of_a_plot() -> None:
    config = RunConfig.model_validate({"run": {"tokens": 100_000}, "schedule": {"warmup": 10}})
    found = sampled(config, points=20)
    assert set(found) == {"tokens", "groups"}
    assert found["tokens"][0] == 0
    assert found["tokens"][-1] >= 100_000
    assert all(at % config.batch.tokens_per_step == 0 for at in found["tokens"])
    assert {len(rates) for rates in found["groups"].values()} == {len(found["tokens"])}
    few = sampled(RunConfig.model_validate({"run": {"steps": 3}}))
    assert len(few["tokens"]) == 4


ADAPTIVE = {"kind": "cosine", "adaptive_from": 0.5, "adaptive_slowest": 0.5, "adaptive_fastest": 2.0}
LOSSES = st.lists(st.floats(0.01, 20), min_size=30, max_size=120)


def walked(found: Course, losses: list[float], pace: Pace | None = None, first: int = 0) -> list[tuple]:
    """(tokens, annealed, rates, pace after) of each step of a run with these losses."""
    rows, pace = [], pace or Pace()
    per_step = -(-found.end // len(losses))
    for number, loss in enumerate(losses[first:], start=first + 1):
        tokens = number * per_step
        annealed = annealed_at(pace, found, tokens)
        pace_now = pace
        pace = pace_after(pace, found, tokens=tokens, loss=loss)
        done = min(1.0, tokens / found.end)
        rows.append((tokens, done if annealed is None else annealed, found.rates(tokens, annealed), pace_now))
    return rows


@given(LOSSES, st.floats(0.2, 1), st.floats(1, 4))
def test_adaptive_annealing_is_monotonic_bounded_and_ends_at_the_floor(losses, slowest, fastest) -> None:
    found = course(**{**ADAPTIVE, "adaptive_slowest": slowest, "adaptive_fastest": fastest})
    rows = walked(found, losses)
    for (tokens, before, rates, _), (later, after, rates_after, _) in pairwise(rows):
        passed = (min(later, END) - min(tokens, END)) / END
        assert before <= after <= before + fastest * passed * (1 + 1e-9) + 1e-12
        assert after >= before + slowest * passed * (1 - 1e-9) - 1e-12
        if tokens >= WARMUP:
            assert all(lower <= upper + 1e-12 for lower, upper in zip(rates_after, rates, strict=True))
    assert rows[-1][1] == 1.0
    assert rows[-1][2] == pytest.approx((PEAK * 0.1,) * 5)


@given(LOSSES, st.integers(1, 29))
def test_adaptive_annealing_is_exact_over_a_resume(losses, cut) -> None:
    found = course(**ADAPTIVE)
    rows = walked(found, losses)
    assert walked(found, losses, rows[cut][3], first=cut) == rows[cut:]


def test_it_goes_faster_when_the_loss_stands_still_and_slower_while_it_improves() -> None:
    found, steps = course(**ADAPTIVE), 400
    still = walked(found, [2.0] * steps)
    falling = walked(found, [3.0 - 1.5 * number / steps for number in range(steps)])
    plain = walked(course(kind="cosine"), [2.0] * steps)
    at = steps * 7 // 10
    assert still[at][1] > plain[at][1] > falling[at][1]
    assert still[at][2][0] < plain[at][2][0] < falling[at][2][0]
    before = steps * 4 // 10  # not yet
    assert still[before][2] == plain[before][2] == falling[before][2]


def test_the_config_wins_over_a_saved_pace() -> None:
    saved = walked(course(**ADAPTIVE), [2.0] * 100)[80][3]
    assert annealed_at(saved, course(kind="cosine"), 1700) is None
    slow = course(**{**ADAPTIVE, "adaptive_fastest": 1.0})
    assert annealed_at(replace(saved, ahead=-0.5), slow, 1700) == pytest.approx(0.85)


@pytest.mark.parametrize("kind", ["constant", "as_printed"])
def test_what_does_not_anneal_cannot_anneal_adaptively(kind: str) -> None:
    assert "does not anneal" in Schedule(kind=kind, adaptive_from=0.5).contradictions()[0]
