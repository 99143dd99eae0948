"""The order of the samples: a permutation per epoch, resumable at any position, with windows left out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.sampling import Sampler, permuted


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_permuted_is_a_permutation(size, key):
    assert sorted(permuted(index, size, key) for index in range(size)) == list(range(size))


def test_each_epoch_holds_every_sample_once_in_another_order():
    sampler = Sampler(samples=101, seed=7)
    epochs = [[sampler.sample(epoch * 101 + index) for index in range(101)] for epoch in range(4)]
    assert all(sorted(epoch) == list(range(101)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert epochs[0] != list(range(101))


def test_the_seed_decides():
    first, same, other = (Sampler(samples=1000, seed=seed) for seed in (1, 1, 2))
    order = [first.sample(position) for position in range(50)]
    assert order == [same.sample(position) for position in range(50)]
    assert order != [other.sample(position) for position in range(50)]


windows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=5)


@given(windows=windows, start=st.integers(0, 60), counts=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_steps_take_exactly_the_positions_outside_the_windows(windows, start, counts):
    sampler = Sampler(samples=10, seed=1, skip_windows=tuple(windows))
    outside = (p for p in itertools.count(start) if not any(first <= p < last for first, last in windows))
    position = start
    for count in counts:
        taken = sampler.take(position, count)
        assert list(taken.positions) == list(itertools.islice(outside, count))
        assert (taken.start, taken.end) == (taken.positions[0], taken.positions[-1] + 1)
        position = taken.end


@pytest.mark.parametrize("size", [1, 2, 3, 1 << 40])
def test_any_size_needs_no_memory(size):
    assert 0 <= permuted(size // 2, size, 5) < size
