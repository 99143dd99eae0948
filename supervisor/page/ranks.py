"""All ranks in a few short strings: what each does, how long it stands still, how far it is behind. Pure.

A healthy run of 16,384 ranks is `g,16384;`: equal neighbours are told once, so that what is sent grows with what is odd.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from contract.beat import WorkerBeat
from contract.config import RunConfig
from contract.layout import by_number
from contract.states import Phase
from supervisor.core.limits import Limit, limit_for
from supervisor.core.look import silent_limit_s
from supervisor.core.observation import NodeSeen, Observation
from supervisor.core.verdict import Verdict

# Letters of what a rank does, the worst first: a table shows the ranks in this order.
FAILED, SUSPECT, STOPPED, UNHEARD, STILL, BEHIND, ENDED, GOING = "xhznsbeg"
ORDER = (FAILED, SUSPECT, STOPPED, UNHEARD, STILL, BEHIND, ENDED, GOING)
_PHASE_LETTERS = "ABCDEFGHIJK"  # by Phase's number
_WELL = frozenset({0, 75})
_MOST_ROWS = 24
_LAG = 2  # in one step all the others are one behind whoever is first
_SHARES = 4  # of the limit

Worker = tuple[NodeSeen, WorkerBeat]


def rank_map(observation: Observation, verdict: Verdict, config: RunConfig) -> dict[str, Any]:
    """`nodes` by place, `size` ranks a node, a string for each quantity, and the oddest ranks in rows."""
    nodes, found = _places(observation, config)
    size = config.job.ranks_per_node
    if not any(found):
        return {"nodes": list(nodes), "size": size}
    ahead = max(worker.step for _, worker in observation.workers)
    letters = _letters(found, observation, verdict, config)
    limit = _limits(observation, config)
    return {
        "nodes": list(nodes),
        "size": size,
        "step": ahead,
        "doing": _short(letters),
        "still": _short(_still(item, limit) for item in found),
        "behind": _short("?" if item is None else str(_lag(item[1], ahead)) for item in found),
        "phase": _short(_phase(item, letter) for item, letter in zip(found, letters, strict=True)),
        "rows": _rows(found, letters, nodes, size),
    }


def worst_of_nodes(
    observation: Observation, verdict: Verdict, config: RunConfig
) -> tuple[tuple[str, ...], str]:
    """The nodes, and the worst letter of each one's ranks; no letters while there is no worker."""
    nodes, found = _places(observation, config)
    if not any(found):
        return nodes, ""
    letters = _letters(found, observation, verdict, config)
    size = config.job.ranks_per_node
    worst = (min(letters[at : at + size], key=ORDER.index) for at in range(0, len(letters), size))
    return nodes, _short(worst)


def _places(observation: Observation, config: RunConfig) -> tuple[tuple[str, ...], list[Worker | None]]:
    """The nodes in the order of their ranks, and the workers by rank; None for one that is not heard of."""
    nodes = observation.members or tuple(
        sorted({seen.node for seen, _ in observation.workers}, key=by_number)
    )
    found: list[Worker | None] = [None] * (len(nodes) * config.job.ranks_per_node)
    for seen, worker in observation.workers:
        if 0 <= worker.rank < len(found):
            found[worker.rank] = (seen, worker)
    return nodes, found


def _letters(
    found: Sequence[Worker | None],
    observation: Observation,
    verdict: Verdict,
    config: RunConfig,
) -> list[str]:
    ahead = max(worker.step for _, worker in observation.workers)
    suspects = frozenset(verdict.suspects if verdict.failed or verdict.told else ())
    silent_s = silent_limit_s(config, observation.lag_s)
    limit = _limits(observation, config)
    letters = []
    for item in found:
        if item is None:
            letters.append(UNHEARD)
            continue
        seen, worker = item
        if worker.exit_code is not None:
            letters.append(ENDED if worker.exit_code in _WELL else FAILED)
        elif worker.rank in suspects:
            letters.append(SUSPECT)
        elif worker.os_state in {"T", "t"}:
            letters.append(STOPPED)
        elif seen.silent_s > silent_s:
            letters.append(UNHEARD)
        elif worker.idle_s > limit(worker) / 2:
            letters.append(STILL)
        else:
            letters.append(BEHIND if ahead - worker.step >= _LAG else GOING)
    return letters


def _limits(observation: Observation, config: RunConfig) -> Callable[[WorkerBeat], float]:
    """For how long (s) this worker's counter may stand still."""

    @cache
    def of_phase(phase: Phase, began: bool) -> Limit:
        return limit_for(phase, config.monitor, observation.usual, first_step_done=began)

    resumed = observation.resume_step or 0
    return lambda worker: of_phase(worker.phase, worker.step > resumed).seconds


def _still(item: Worker | None, limit: Callable[[WorkerBeat], float]) -> str:
    """Quarters of the limit for which it has stood still, 4 beyond it."""
    if item is None or item[1].exit_code is not None:
        return "?"
    return str(min(_SHARES, int(_SHARES * item[1].idle_s / max(1e-9, limit(item[1])))))


def _lag(worker: WorkerBeat, ahead: int) -> int:
    behind = ahead - worker.step
    return 0 if behind < _LAG else min(9, behind)


def _phase(item: Worker | None, letter: str) -> str:
    """Of one that goes on the phase is a matter of the moment, and says nothing."""
    if item is None or letter == GOING:
        return "-"
    return _PHASE_LETTERS[int(item[1].phase)]


def _rows(
    found: Sequence[Worker | None], letters: Sequence[str], nodes: Sequence[str], size: int
) -> list[list[Any]]:
    """[rank, node, pid, what it does, phase, step, seconds without progress], the oddest first; all of a small run."""
    place = {letter: number for number, letter in enumerate(ORDER)}
    few = len(found) <= _MOST_ROWS
    shown = [rank for rank, letter in enumerate(letters) if few or letter != GOING]
    odd = sorted(shown, key=lambda rank: (place[letters[rank]], rank))[:_MOST_ROWS]
    rows: list[list[Any]] = []
    for rank in odd:
        item, node = found[rank], nodes[rank // size]
        if item is None:
            rows.append([rank, node, None, letters[rank], None, None, None])
            continue
        worker = item[1]
        still = round(worker.idle_s, 1) if letters[rank] != GOING else None
        rows.append([rank, node, worker.pid, letters[rank], worker.phase.word, worker.step, still])
    return rows


def _short(letters: Iterable[str]) -> str:
    """`ggggs` → `g,4;s,1;`."""
    return "".join(f"{letter},{sum(1 for _ in group)};" for letter, group in groupby(letters))
