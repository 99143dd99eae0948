"""One micro-batch size tried for real: two optimizer steps of the run's own model, in a process that may die of it.

    python -P -m trainer.batch.trial CONFIG MICRO_BATCH MEMORY_BYTES     # rank and size from torchrun's variables

Rank 0 prints one line of JSON: {"peak": bytes, "tokens_per_s": of all ranks}. Exit code 9: out of memory.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract import config as configuration
from contract.config import RunConfig
from trainer.errors import NoMemoryError, TrainerError
from trainer.recipe import wanted_accelerator

NO_MEMORY = 9
_MICRO_STEPS = 2  # the second adds to gradients that the first has left: that is when a step needs most
# The last two: oneDNN has no room for its kernel, the kernel none for a thread's stack.
_WORDS = (
    "out of memory",
    "can't allocate memory",
    "bad allocation",
    "bad_alloc",
    "could not create a primitive",
    "Resource temporarily unavailable",
)


def main(arguments: Sequence[str]) -> int:
    """Try; returns the exit code."""
    path, size, limit = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    config = configuration.load(path, _overrides(size, ranks=int(os.environ["WORLD_SIZE"])))
    os.environ.setdefault("DS_ACCELERATOR", wanted_accelerator(config))
    from trainer import preload  # noqa: F401 - torch and DeepSpeed, set up as for training

    try:
        found = _measured(config, limit)
    except TrainerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return int(error.code)
    except (NoMemoryError, RuntimeError, MemoryError) as error:  # the model alone may be too much
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _WORDS):
            raise
        return NO_MEMORY
    if os.environ["RANK"] == "0":
        print(json.dumps(found))  # noqa: T201
    return 0


def _overrides(size: int, *, ranks: int) -> list[str]:
    return [
        "job.nodes=1",
        f"job.ranks_per_node={ranks}",
        "batch.adaptive=off",
        "batch.lr_rule=none",
        "batch.max_micro_batch_size=0",
        f"batch.micro_batch_size={size}",
        f"batch.global_batch_size={size * ranks * _MICRO_STEPS}",
    ]


def _limit_memory(limit: int) -> None:
    """Let this process take so many bytes, what is resident now included.

    The kernel's limit also counts address space that is reserved and never touched, so it must not count here.
    """
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as file:
        sizes = {
            key: int(value.split()[0]) * 1024
            for key, _, value in (line.partition(":") for line in file)
            if key in {"VmData", "VmRSS"}
        }
    allowed = sizes["VmData"] + max(0, limit - sizes["VmRSS"])
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def _measured(config: RunConfig, limit: int) -> dict[str, Any]:
    """Peak memory and speed of this many samples at once; the first step allocates, the second is timed."""
    import torch

    from contract.page import NullPage
    from contract.sampling import Sampler
    from trainer.assembly import plan
    from trainer.batch.clock import NoClock
    from trainer.batch.plan import configured
    from trainer.data.batches import Batches
    from trainer.distributed import Ranks
    from trainer.engine import build_engine
    from trainer.groups import Layout
    from trainer.levers import compiled, thrifty
    from trainer.model import build_model
    from trainer.norms import Watch
    from trainer.precision import in_precision
    from trainer.routers import Routers
    from trainer.step import Instruments, Wishes, take_step
    from trainer.worker import worker_from_environment

    with tempfile.TemporaryDirectory() as nowhere:
        worker = worker_from_environment(os.environ, Path(nowhere))
        given = plan(config, worker.run, ranks=worker.world_size)
        accelerator = wanted_accelerator(config)
        ranks = Ranks(worker, accelerator=accelerator, timeout_s=config.deepspeed.timeout_s, patience_s=60)
    if accelerator == "cpu" and limit:
        _limit_memory(limit)
    divided = given.settings if config.deepspeed.zero_stage == 3 else None
    model = build_model(given.shape, seed=config.run.seed, divided=divided)
    model = in_precision(thrifty(model, config.memory), config.precision)
    model = compiled(model, wanted=config.model.compile_layers)
    watch = Watch()
    layout = Layout.BY_MATRIX if config.optimizer.name == "muon" else Layout.BY_LAYER
    engine = build_engine(config, given.settings, model, layout, watch)
    data = Batches(given.reader, Sampler(samples=given.reader.samples, seed=0), rank=worker.rank)
    cut = configured(config.batch, worker.world_size)
    instruments = Instruments(
        page=NullPage(),
        watch=watch,
        clock=NoClock(),
        routers=Routers(engine.module, config.model, ranks.device),
        ahead_weight=config.model.mtp_loss_weight,
    )
    wishes = Wishes(stop=False, save=False, redo=False)
    for step in range(2):
        window, started = data.window(step * cut.global_batch, cut), time.perf_counter()
        outcome = take_step(engine, window, ranks, instruments, step=step, wishes=wishes)
        seconds = time.perf_counter() - started
    if accelerator == "cuda":
        peak = torch.cuda.max_memory_reserved()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak": max(ranks.gather(peak)), "tokens_per_s": round(outcome.tokens / seconds, 1)}


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a rank that ran out of memory leaves the others in a collective: no orderly end
