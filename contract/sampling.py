"""Which sample stands at which position of the run. Pure: the whole state is one number, the position.

Positions count samples over all ranks from 0, epoch after epoch; each epoch is its own permutation. The
permutation is computed, not stored (a Feistel network over the next power of four, walked until it lands inside),
so a resume at position p costs nothing and a data set of any size needs no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

_ROUNDS = 4
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # keeps the keys of neighbouring seeds apart


def _mix(value: int) -> int:
    """SplitMix64's finaliser: 64 well-mixed bits."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def permuted(index: int, size: int, key: int) -> int:
    """Where a permutation of range(size), chosen by `key`, sends `index`."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (_mix(right + _mix(key + number)) & mask)
        index = left << half | right
        if index < size:
            return index


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The positions of one optimizer step, and where the next step starts."""

    positions: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Order of the samples of one data set.

    `skip_windows` are half-open ranges of positions that are jumped over; they may overlap.
    """

    samples: int
    seed: int
    skip_windows: tuple[tuple[int, int], ...] = ()

    def sample(self, position: int) -> int:
        """The sample (0 ≤ sample < samples) at this position."""
        epoch, index = divmod(position, self.samples)
        return permuted(index, self.samples, _mix(self.seed * _SPREAD + epoch & _MASK))

    def take(self, start: int, count: int) -> Taken:
        """The next `count` positions from `start` on that no window excludes."""
        windows = sorted(window for window in self.skip_windows if window[1] > max(start, window[0]))
        taken: list[int] = []
        at = start
        for first, last in [*windows, (start + count + self._skipped(windows), 0)]:
            taken += range(at, max(at, min(first, at + count - len(taken))))
            if len(taken) == count:
                break
            at = max(at, last)
        return Taken(positions=tuple(taken), start=taken[0], end=taken[-1] + 1)

    @staticmethod
    def _skipped(windows: list[tuple[int, int]]) -> int:
        """At least as many positions as the windows cover."""
        return sum(last - first for first, last in windows)


def shares(weights: Sequence[float]) -> tuple[int, ...]:
    """These weights, read as the decimals that they are written as, in the smallest whole numbers."""
    exact = [Fraction(str(weight)) for weight in weights]
    common = lcm(*(share.denominator for share in exact))
    counts = [int(share * common) for share in exact]
    return tuple(count // gcd(*counts) for count in counts)


@dataclass(frozen=True, kw_only=True)
class Mixture(Sampler):
    """Order of the samples of several data sets, which `samples` and the sample numbers count through one by one.

    Positions come in blocks with exactly `shares` samples of each set, in an order of the block's own. Each set has
    epochs of its own: it begins its next one when it is through, whatever the others do.
    """

    parts: tuple[Sampler, ...]
    shares: tuple[int, ...]

    def place(self, position: int) -> tuple[int, int]:
        """(which set, the position within that set's own order) at this position."""
        block, slot = divmod(position, sum(self.shares))
        slot = permuted(slot, sum(self.shares), _mix(self.seed * _SPREAD + block & _MASK))
        for part, share in enumerate(self.shares):
            if slot < share:
                return part, block * share + slot
            slot -= share
        raise AssertionError

    def sample(self, position: int) -> int:
        """The sample at this position."""
        part, index = self.place(position)
        return sum(its.samples for its in self.parts[:part]) + self.parts[part].sample(index)


def part_seed(seed: int, part: int) -> int:
    """The seed of one of several data sets: equal sets must not be read in step."""
    return _mix(seed * _SPREAD + part + 1 & _MASK)


def sampler_of(
    samples: Sequence[int],
    weights: Sequence[float],
    *,
    seed: int,
    skip_windows: tuple[tuple[int, int], ...] = (),
) -> Sampler:
    """The order of a run over one data set or several, of so many samples each."""
    if len(samples) == 1:
        return Sampler(samples=samples[0], seed=seed, skip_windows=skip_windows)
    return Mixture(
        samples=sum(samples),
        seed=seed,
        skip_windows=skip_windows,
        parts=tuple(Sampler(samples=count, seed=part_seed(seed, part)) for part, count in enumerate(samples)),
        shares=shares(weights),
    )
