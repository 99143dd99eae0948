"""The learning rate."""

import pytest

from contract.config.schedule import Schedule
from trainer.schedule import rate


def rates(target=100, **keys):
    return [rate(Schedule(**keys), peak=2.0, position=step, target=target) for step in range(1, target + 1)]


def test_warm_up_is_linear_and_reaches_the_peak():
    found = rates(kind="constant", warmup=4)
    assert found[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert set(found[3:]) == {2.0}


def test_cosine_falls_from_the_peak_to_the_floor_at_the_target():
    found = rates(kind="cosine", warmup=20, floor_ratio=0.1)
    assert found[19] == 2.0
    assert found[59] == pytest.approx(1.1)
    assert found[-1] == pytest.approx(0.2)
    assert found[19:] == sorted(found[19:], reverse=True)


def test_past_its_length_the_rate_stays_at_the_floor():
    assert rates(kind="cosine", length=50, floor_ratio=0.25)[49:] == [0.5] * 51


def test_no_warm_up_and_a_warm_up_as_long_as_the_run():
    assert rates(kind="cosine")[0] == pytest.approx(2.0, rel=1e-3)
    assert rates(kind="cosine", warmup=100)[-1] == 2.0
