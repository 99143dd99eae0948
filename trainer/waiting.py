"""All ranks wait for something that rank 0 does alone, without looking hung and without a communicator's time-out."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TypeVar

from contract.page import WorkerPage
from contract.states import Phase
from trainer.distributed import Ranks

T = TypeVar("T")
_TURN_S = 2.0  # between two words of rank 0 to the others


def together(ranks: Ranks, page: WorkerPage, work: Callable[[], T], moved: Callable[[], int]) -> T:
    """Rank 0's result of `work`, on every rank; what `work` raises is raised on rank 0.

    As long as `moved` (how much is through) goes on, every rank marks progress; when it stands still, none does,
    and the supervisor sees a load that hangs.
    """
    if ranks.rank != 0:
        return _follow(ranks, page)
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work)
        seen = moved()
        while not _done(doing):
            if (now := moved()) != seen:
                seen = now
                page.mark(step=0, phase=Phase.LOAD, micro_step=seen)
            ranks.from_leader((False, seen))
        answer: T = ranks.from_leader((True, doing.result()))[1]
        return answer


def _follow(ranks: Ranks, page: WorkerPage) -> T:  # type: ignore[type-var]
    seen = 0
    while True:
        over, said = ranks.from_leader(None)
        if over:
            answer: T = said
            return answer
        if said != seen:
            seen = said
            page.mark(step=0, phase=Phase.LOAD, micro_step=seen)


def _done(doing: "Future[T]") -> bool:
    return bool(wait_for([doing], timeout=_TURN_S).done)
