"""How long a worker's counter may stand still: a limit for each phase, learned from the run itself (rule 8)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from contract.beat import WorkerBeat
from contract.config.monitor import Monitor
from contract.states import Phase

# These touch shared storage, whose stalls are longer than a step and harmless.
_STORAGE = frozenset({Phase.SAVE, Phase.EVALUATE, Phase.DATA})
_STORAGE_FLOORS = 4
_LONG = frozenset(
    {Phase.SAVE, Phase.EVALUATE}
)  # here moving bytes is work; while data is read, sockets talk too


_BUSY_CORES = 0.5
_BUSY_FACTOR = 2.0  # a loop in C and a wait that spins are busy too: more time, never all of it


@dataclass(frozen=True, kw_only=True)
class Limit:
    """`usual_s` None: nothing was learned, so the ceiling holds. `busy`: longer than usual, because it works."""

    seconds: float
    ceiling_s: float
    usual_s: float | None = None
    busy: bool = False

    def facts(self) -> dict[str, float | None]:
        return {"limit_s": self.seconds, "ceiling_s": self.ceiling_s, "usual_s": self.usual_s}


def standstill(worker: WorkerBeat) -> float:
    """Seconds without progress and without a sign of useful work: a save or an evaluation that moves bytes works."""
    if worker.phase in _LONG and worker.quiet_s is not None:
        return min(worker.idle_s, worker.quiet_s)
    return worker.idle_s


def is_busy(worker: WorkerBeat) -> bool:
    """Whether the process has used the CPU for most of its standstill. GPUs tell nothing: a wait in NCCL keeps them busy."""
    return worker.busy is not None and worker.busy >= _BUSY_CORES


def longer_if_busy(limit: Limit, workers: Iterable[WorkerBeat]) -> Limit:
    """More time for those that work. The ceiling stays what it is."""
    if not any(is_busy(worker) for worker in workers):
        return limit
    return replace(limit, seconds=min(limit.ceiling_s, _BUSY_FACTOR * limit.seconds), busy=True)


def limit_for(
    phase: Phase,
    monitor: Monitor,
    usual: Mapping[str, float],
    *,
    first_step_done: bool,
    stopped: bool = False,
) -> Limit:
    """The limit of this phase. Start-up, load and the first step after a resume are never learned: always ceilings.

    `stopped`: the kernel shows that it is not the storage that the process waits for.
    """
    ceiling = _ceiling(phase, monitor)
    if phase.in_step and not first_step_done:
        ceiling = monitor.first_step_s
        return Limit(seconds=ceiling, ceiling_s=ceiling)
    known = _usual(phase, usual)
    if known is None:
        return Limit(seconds=ceiling, ceiling_s=ceiling)
    floor = monitor.hang_floor_s * (_STORAGE_FLOORS if phase in _STORAGE and not stopped else 1)
    seconds = min(ceiling, max(floor, monitor.hang_factor * known))
    return Limit(seconds=seconds, ceiling_s=ceiling, usual_s=known)


def _usual(phase: Phase, usual: Mapping[str, float]) -> float | None:
    """Phases of a step share one value: in which of them the ranks wait for each other is chance.

    But a stall of the storage that once held up the data must not make us patient with a computation for good.
    """
    if phase.in_step:
        known = {item: usual[item.word] for item in Phase if item.in_step and item.word in usual}
        computing = [seconds for item, seconds in known.items() if item is not Phase.DATA]
        return max(computing if computing and phase is not Phase.DATA else known.values(), default=None)
    return usual.get(phase.word) if phase in _STORAGE else None


def _ceiling(phase: Phase, monitor: Monitor) -> float:
    match phase:
        case Phase.COMPILE:
            return monitor.compile_s
        case Phase.LOAD:
            return monitor.load_s
        case Phase.DATA | Phase.FORWARD | Phase.BACKWARD | Phase.OPTIMIZER:
            return monitor.step_s
        case Phase.EVALUATE:
            return monitor.evaluate_s
        case Phase.SAVE:
            return monitor.save_s
        case Phase.UNKNOWN | Phase.START | Phase.EXIT:
            return monitor.start_s
