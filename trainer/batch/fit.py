"""The largest micro-batch that fits: a search over trials in processes of their own. Imports no torch."""

import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from contract import config as configuration
from contract import files
from contract.config import RunConfig

_TRIAL_S = 900.0
_NO_MEMORY = 9
_PACKAGES = ("torch", "deepspeed", "transformers")


class FitError(Exception):
    """A trial failed for another reason than memory; the text says which."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one size showed. `peak` is the memory of the fullest rank in bytes, `tokens_per_s` that of all ranks.

    `limit`: what a rank might take, in bytes; 0: what the device has.
    """

    micro_batch: int
    fits: bool
    peak: int = 0
    tokens_per_s: float = 0.0
    limit: int = 0

    def holds(self, memory: int) -> bool:
        """Whether it says the same of so much memory for one rank."""
        return not memory or self.peak <= memory if self.fits else memory <= self.limit


def next_size(tried: Mapping[int, bool], most: int) -> int | None:
    """The size to try next: doubled while it fits, then halved between the two; None when the largest is known."""
    good = max((size for size, fits in tried.items() if fits), default=0)
    bad = min((size for size, fits in tried.items() if not fits), default=most + 1)
    if bad - good <= 1:
        return None
    return min(2 * good, most) if bad > most and good else 1 if not good and bad > most else (good + bad) // 2


def search(most: int, attempt: Callable[[int], Trial], known: Sequence[Trial] = ()) -> list[Trial]:
    """All trials on the way to the largest size up to `most` that fits; `known` ones are not repeated."""
    trials = list(known)
    while (size := next_size({trial.micro_batch: trial.fits for trial in trials}, most)) is not None:
        trials.append(attempt(size))
    return trials


def largest(trials: list[Trial]) -> int:
    """The largest size that fits, 0 when none does."""
    return max((trial.micro_batch for trial in trials if trial.fits), default=0)


def try_size(recipe: Path, config: RunConfig, size: int, memory: int) -> Trial:
    """Two steps with this micro-batch on the ranks of one node.

    Raises:
        FitError: it ended otherwise than by success or lack of memory.
    """
    ranks = config.job.ranks_per_node
    with socket.socket() as free, tempfile.TemporaryFile("w+") as said:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        workers = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "trainer.batch.trial", str(recipe), str(size), str(memory)],
                env=_environment(rank, ranks, port),
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            for rank in range(ranks)
        ]
        try:
            codes, out = _ended(workers)
        finally:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                if worker.stdout:
                    worker.stdout.close()
        if codes == [0] * ranks:
            found = json.loads(out.splitlines()[-1])
            return Trial(
                micro_batch=size,
                fits=True,
                peak=found["peak"],
                tokens_per_s=found["tokens_per_s"],
                limit=memory,
            )
        if _NO_MEMORY in codes or -signal.SIGKILL in codes:  # the kernel's way of saying it
            return Trial(micro_batch=size, fits=False, limit=memory)
        said.seek(0)
        raise FitError(f"micro-batch {size}: the trial ended with {codes}\n{said.read()[-2000:].strip()}")


def _ended(workers: list[subprocess.Popen[bytes]]) -> tuple[list[int | None], str]:
    """Exit codes once all have ended, or one has failed (the others wait for it then), and what rank 0 printed."""
    deadline = time.monotonic() + _TRIAL_S
    while True:
        codes = [worker.poll() for worker in workers]
        if None not in codes or any(codes) or time.monotonic() > deadline:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            workers[0].wait(timeout=0.1)
    if None in codes and not any(codes):
        raise FitError(f"a trial did not end within {_TRIAL_S:.0f} s")
    out = workers[0].stdout.read().decode() if codes[0] == 0 and workers[0].stdout else ""
    return codes, out


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def free_memory(config: RunConfig) -> int:
    """Bytes that one rank may take on a CPU: its share of what the machine has free. 0 with GPUs: they say it."""
    if config.job.gpus_per_node:
        return 0
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 // config.job.ranks_per_node
    return 0


def global_share(config: RunConfig) -> int:
    """Samples of the global batch that one rank has: a larger micro-batch could never be used."""
    return max(1, config.batch.global_batch_size // config.job.world_size)


def cache_file(config: RunConfig) -> Path:
    """Where the answer for this model, device and software is kept. How much memory is free changes all the time."""
    facts = {
        "config": {
            name: getattr(config, name).model_dump(mode="json")
            for name in ("model", "precision", "deepspeed", "optimizer", "numerics")
        },
        "length": config.batch.sequence_length,
        "ranks": config.job.ranks_per_node,
        "device": _device(config),
        "versions": [importlib.metadata.version(name) for name in _PACKAGES],
    }
    digest = xxhash.xxh3_64_hexdigest(json.dumps(facts, sort_keys=True).encode())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "ciuic" / "fit" / f"{digest}.json"


def _device(config: RunConfig) -> str:
    if not config.job.gpus_per_node:
        return f"cpu {platform.machine()}"
    asked = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
    return "unknown"


def kept(path: Path, memory: int) -> list[Trial]:
    """The trials of an earlier search that hold for so much memory, none when there was none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        trials = [Trial(**trial) for trial in json.loads(path.read_bytes())["trials"]]
        return [trial for trial in trials if trial.holds(memory)]
    return []


def keep(path: Path, trials: Sequence[Trial]) -> None:
    """Keep them for the next search. A cache that cannot be written is no reason to fail."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_json(path, {"version": 1, "trials": [asdict(trial) for trial in trials]})


def resolved(config: RunConfig, directory: Path) -> Path:
    """The configuration with its overrides as a file, for the trials."""
    path = directory / "run.toml"
    path.write_text(configuration.dump(config), encoding="utf-8")
    return path
