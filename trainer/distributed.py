"""The communicators of one generation: torch's process group, DeepSpeed's wrapper, and a group for agreements."""

from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

from trainer.errors import ConfigError
from trainer.rendezvous import meet
from trainer.worker import Worker, complete_environment

# Agreements happen around saves, which may take long on a slow file system; a peer that dies closes its
# connection and is noticed at once all the same.
_CONTROL_TIMEOUT = timedelta(hours=2)


class Channel:
    """Small agreements of all ranks on the host (float64 numbers and small objects). One thread at a time."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._group = dist.new_group(backend="gloo", timeout=_CONTROL_TIMEOUT)

    def sums(self, *numbers: float) -> list[float]:
        """The sums of these numbers over all ranks, the same on each."""
        if self.size == 1:
            return [float(number) for number in numbers]
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, group=self._group)
        found: list[float] = values.tolist()
        return found

    def from_leader(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value in the order of ranks, on every rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._group)
        return found


class Ranks(Channel):
    """All ranks of this generation. `beside` is a channel for the one thread that works beside the training loop."""

    def __init__(self, worker: Worker, *, accelerator: str, timeout_s: int, patience_s: float) -> None:
        """Connect. Blocks until every rank is there, `patience_s` at most under an agent.

        A generation has a store of its own on a port of its own: torch's store and Gloo's full mesh do not survive
        a second generation.

        Raises:
            ConfigError: the device that the run asks for is not there.
            RendezvousError: the ranks did not find each other.
        """
        complete_environment(worker)
        cuda = accelerator == "cuda"
        _check_device(accelerator)
        if cuda:
            torch.cuda.set_device(worker.local_rank)
        self.device = torch.device("cuda", worker.local_rank) if cuda else torch.device("cpu")
        backend = "nccl" if cuda else "gloo"
        timeout = timedelta(seconds=timeout_s)
        if worker.world_size == 1:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
        elif worker.supervised:
            dist.init_process_group(
                backend,
                store=meet(worker, patience_s=min(patience_s, timeout_s), timeout=timeout),
                rank=worker.rank,
                world_size=worker.world_size,
                timeout=timeout,
            )
        else:  # torchrun has a store of its own, which the variables describe
            dist.init_process_group(backend, timeout=timeout)
        deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, timeout=timeout)
        super().__init__(worker.rank, worker.world_size)
        self.beside = Channel(worker.rank, worker.world_size)
        self.beside_hangs = False  # the thread cannot be waited for: its communicator must not be taken away

    def leave(self) -> None:
        """Wait for the others and close. Without it about one exit in six ends in SIGABRT."""
        dist.barrier(group=self._group)
        if not self.beside_hangs:
            dist.destroy_process_group()


def _check_device(accelerator: str) -> None:
    found = deepspeed.get_accelerator().device_name()
    if found != accelerator:
        raise ConfigError(
            f"[job] gpus_per_node asks for {accelerator}, DeepSpeed was set up for {found} (DS_ACCELERATOR); "
            f"CUDA is {'there' if torch.cuda.is_available() else 'not available'}"
        )
