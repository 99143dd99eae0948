"""What can be said without simulating: the oracles of the simulation, and the best interval between two saves.

All times in one unit, whichever. M: mean running time between failures of the job; D: mean dead time of one
failure (detect, decide, queue, restart, load); Δ (`interval`): productive time between two saves; w (`stall`):
standstill of a save; ℓ (`lag`): time after the stall until the save can be resumed from.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

_NEVER = (
    700.0  # so many failures between two saves: none comes about, and e to that power is no number any more
)


def ettr(mtbf: float, dead: float, interval: float, stall: float = 0.0, lag: float = 0.0) -> float:
    """Exact share of useful time when exponential failures strike only while the job trains.

    Δ·e^(-ℓ/M) / ((M+D)·(e^((Δ+w)/M) - 1)). Independent of the distribution of D. Saved work of a cycle is
    Δ·Σ P(T ≥ k(Δ+w)+ℓ), a cycle lasts M+D on average.
    """
    if math.isinf(mtbf):
        return interval / (interval + stall)
    if (interval + stall) / mtbf > _NEVER:
        return 0.0
    return interval * math.exp(-lag / mtbf) / ((mtbf + dead) * math.expm1((interval + stall) / mtbf))


def ettr_exposed(mtbf: float, restart: float, interval: float, stall: float = 0.0) -> float:
    """The same when failures may also strike a restart of fixed length R: Δ/(M·e^(R/M)·(e^((Δ+w)/M) - 1)).

    J. T. Daly, A higher order estimate of the optimum checkpoint interval, FGCS 22 (2006).
    """
    if (restart + interval + stall) / mtbf > _NEVER:
        return 0.0
    return interval / (mtbf * math.exp(restart / mtbf) * math.expm1((interval + stall) / mtbf))


def ettr_renewal(
    survival: Callable[[float], float],
    mtbf: float,
    dead: float,
    interval: float,
    stall: float = 0.0,
    lag: float = 0.0,
) -> float:
    """The same for any distribution of the running time, with survival function S: Δ·Σ S(k(Δ+w)+ℓ)/(E[T]+D)."""
    saved, count = 0.0, 1
    while True:
        term = survival(count * (interval + stall) + lag)
        saved += term
        if term < 1e-12:
            return interval * saved / (mtbf + dead)
        count += 1


def ettr_small(mtbf: float, dead: float, interval: float, stall: float = 0.0) -> float:
    """For small losses: (1 - (u0+Δ/2)/M)/(1+w/Δ). Kokolis et al., arXiv 2410.21680; u0 is D plus the lag."""
    return (1 - (dead + interval / 2) / mtbf) / (1 + stall / interval)


def daly_interval(mtbf: float, stall: float) -> float:
    """Daly's series for the same: y·(1+⅓√(w/2M)+(w/2M)/9)-w with y = √(2wM), for w < 2M."""
    half = stall / (2 * mtbf)
    return math.sqrt(2 * stall * mtbf) * (1 + math.sqrt(half) / 3 + half / 9) - stall


def spares_needed(in_repair: float, certainty: float = 0.99) -> int:
    """Least S with P(nodes in repair ≤ S) ≥ certainty.

    Nodes in repair are Poisson with mean nodes·rate·E[repair], whatever the distribution of repair times
    (M/G/∞), as long as the job keeps its size.
    """
    if in_repair > 500:  # e^-ρ leaves the range of a float; the normal law is as good there
        return math.ceil(NormalDist(in_repair + 0.5, math.sqrt(in_repair)).inv_cdf(certainty))
    term = total = math.exp(-in_repair)
    count = 0
    while total < certainty and count < 1_000_000:
        count += 1
        term *= in_repair / count
        total += term
    return count
