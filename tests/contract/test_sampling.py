"""The order of the samples: a permutation per epoch, resumable at any position, with windows left out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.sampling import Sampler, permuted, sampler_of, shares


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


def test_weights_are_the_decimals_that_people_write():
    assert shares([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert shares([3.0, 1.5]) == (2, 1)
    assert shares([5.0]) == (1,)


counts = st.lists(st.integers(1, 30), min_size=2, max_size=4)


@given(counts=counts, data=st.data(), seed=st.integers(0, 1000))
def test_a_mixture_has_exact_shares_and_epochs_of_each_set(counts, data, seed):
    weights = data.draw(st.lists(st.integers(1, 6), min_size=len(counts), max_size=len(counts)))
    mixed = sampler_of(counts, weights, seed=seed)
    whole = sum(mixed.shares)
    blocks = 12
    found = [mixed.place(position) for position in range(whole * blocks)]
    for block in range(blocks):
        parts = [part for part, _ in found[block * whole : (block + 1) * whole]]
        assert [parts.count(part) for part in range(len(counts))] == list(mixed.shares)
    firsts = [sum(counts[:part]) for part in range(len(counts))]
    for part, size in enumerate(counts):
        assert sorted(index for which, index in found if which == part) == list(
            range(blocks * mixed.shares[part])
        )
        taken = {index: mixed.sample(at) for at, (which, index) in enumerate(found) if which == part}
        for epoch in range(len(taken) // size):
            numbers = [taken[epoch * size + index] - firsts[part] for index in range(size)]
            assert sorted(numbers) == list(range(size))


def test_a_mixture_follows_the_seed_and_jumps_windows():
    first, same, other = (sampler_of([500, 300], [0.8, 0.2], seed=seed) for seed in (1, 1, 2))
    order = [first.sample(position) for position in range(60)]
    assert order == [same.sample(position) for position in range(60)]
    assert order != [other.sample(position) for position in range(60)]
    jumping = sampler_of([500, 300], [0.8, 0.2], seed=1, skip_windows=((4, 8),))
    assert jumping.take(2, 4).positions == (2, 3, 8, 9)
    assert [jumping.sample(position) for position in range(60)] == order
    equal = sampler_of([400, 400], [1, 1], seed=1)
    assert equal.parts[0].sample(0) != equal.parts[1].sample(0)  # two copies of one set are not read in step


def test_one_data_set_keeps_the_order_that_it_always_had():
    assert sampler_of([1000], [0.3], seed=5) == Sampler(samples=1000, seed=5)
