"""The ranks of one generation find each other, or the one that is missing is named within a time limit.

torch by itself says that "some" clients did not join, after half an hour. So there is a roll call before its set-up:
each rank counts itself in the generation's store, rank 0 reads the list.
"""

import os
import socket
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trainer.errors import RendezvousError
from trainer.worker import Worker

_POLL_S = 0.02
_MARGIN_S = 5.0  # the others wait a little longer than rank 0, which knows more


def meet(worker: Worker, *, patience_s: float, timeout: timedelta) -> Any:
    """The generation's store, once every rank is there; `timeout` holds for its later use.

    Rank 0 takes over a socket that is bound already, so that nobody can take its port in between.

    Raises:
        RendezvousError: a rank is missing, there twice, or cannot reach rank 0. It names the rank.
    """
    store = _connect(worker, patience_s)
    _count_in(store, worker)
    if worker.leads:
        _call_the_roll(store, worker, patience_s)
    else:
        store.wait([_COMPLETE], timedelta(seconds=patience_s + _MARGIN_S))
    store.set_timeout(timeout)
    return store


_COMPLETE = "ciuic/complete"


def _connect(worker: Worker, patience_s: float) -> Any:
    place = f"{worker.master_address}:{worker.master_port}"
    try:
        return dist.TCPStore(
            worker.master_address.strip("[]"),
            worker.master_port,
            worker.world_size,
            is_master=worker.leads,
            timeout=timedelta(seconds=patience_s),
            wait_for_workers=False,
            master_listen_fd=worker.master_fd if worker.leads and worker.master_fd >= 0 else None,
        )
    except RuntimeError as error:  # all of torch's own errors here derive from it
        said = str(error).split("\n", maxsplit=1)[0]
        what = f"cannot listen at {place}" if worker.leads else f"cannot reach rank 0 at {place} (the master)"
        raise RendezvousError(f"rank {worker.rank} {what} within {patience_s:.0f} s: {said}") from error


def _count_in(store: Any, worker: Worker) -> None:
    number = store.add(_seat(worker.rank), 1)
    place = os.environ.get("CIUIC_NODE") or socket.gethostname()
    store.set(f"ciuic/who/{worker.rank}/{number}", f"{place}, pid {os.getpid()}")
    if number > 1:
        raise _twice(store, worker.rank)


def _call_the_roll(store: Any, worker: Worker, patience_s: float) -> None:
    missing = set(range(worker.world_size))
    deadline = time.monotonic() + patience_s
    while missing:
        missing = {rank for rank in missing if not store.check([f"ciuic/who/{rank}/1"])}
        if missing and time.monotonic() > deadline:
            names = ", ".join(str(rank) for rank in sorted(missing)[:16])
            raise RendezvousError(
                f"rank {names} did not come to {worker.master_address}:{worker.master_port} within "
                f"{patience_s:.0f} s; {worker.world_size - len(missing)} of {worker.world_size} are there",
                tuple(sorted(missing)),
            )
        if missing:
            time.sleep(_POLL_S)
    for rank in range(worker.world_size):
        if store.add(_seat(rank), 0) > 1:
            raise _twice(store, rank)
    store.set(_COMPLETE, "yes")


def _twice(store: Any, rank: int) -> RendezvousError:
    keys = [f"ciuic/who/{rank}/{number}" for number in (1, 2)]
    found = [store.get(key).decode() for key in keys if store.check([key])]
    return RendezvousError(f"rank {rank} is there more than once: {' and '.join(found)}")


def _seat(rank: int) -> str:
    return f"ciuic/seat/{rank}"
