"""Sample reads from a slow source against the node's own disk, and the copying itself beside cp and rsync.

    .venv/bin/python -P benchmarks/staging.py [--dir DIR] [--megabytes 400] [--latency-ms 8] [--samples 500]      # half a minute

The source's latency is injected: each of its reads sleeps before it is passed on (no network file system is mounted).
Files leave the page cache before each part; what the disk below keeps cached is the same for all.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from contract import staged
from contract.files import replace_json
from contract.sampling import Sampler
from contract.sources import FolderSource
from contract.staged import Sums
from slurm.node.stage import Stager
from trainer.batch.plan import Plan
from trainer.data.batches import Batches
from trainer.data.reader import ShardReader, TokenReader
from trainer.measure.reads import distribution, forget

LENGTH = 4096


class Slow(ShardReader):
    """The source answers late."""

    latency_s = 0.0

    def _from_source(self, shard, start, count):
        time.sleep(self.latency_s)
        return super()._from_source(shard, start, count)


def make(directory: Path, megabytes: int) -> None:
    """A prepared data set of random tokens, in shards of 50 MB."""
    directory.mkdir()
    numbers = np.random.default_rng(0)
    shards = []
    for number in range(max(1, megabytes // 50)):
        data = numbers.integers(0, 1 << 16, size=25_000_000, dtype=np.uint16).tobytes()
        name = f"train-{number:05d}.bin"
        (directory / name).write_bytes(data)
        sums = Sums(staged.Shard(file=name, size=len(data), xxh3="0"))
        sums.update(data)
        shards.append({"file": name, "tokens": len(data) // 2, "bytes": len(data), "xxh3": sums.xxh3})
    index = {
        "version": 1, "dtype": "uint16", "tokenizer": {"kind": "byte", "vocab_size": 65_536, "end": 0},
        "documents": {}, "splits": {"train": {"shards": shards}, "validation": {"shards": []}},
    }  # fmt: skip
    replace_json(directory / "index.json", index)


def reads(data: Path, stage: Path, latency_s: float, samples: int) -> dict:
    Slow.latency_s = latency_s
    place = staged.place(stage, (data / "index.json").read_bytes())
    chance = random.Random(1)
    found = {}
    for name, at in (("source", None), ("staged", place)):
        reader = TokenReader(data, "train", length=LENGTH)
        reader.bytes = Slow(FolderSource(data), at)
        numbers = [chance.randrange(reader.samples) for _ in range(samples)]
        forget(data)
        forget(place)
        found[name] = distribution(reader.sample, numbers)
    return found


def waits(data: Path, stage: Path, latency_s: float, *, steps: int, step_s: float, samples: int) -> dict:
    """Seconds a step for which the trainer's own loader keeps a step of `step_s` waiting, from either place."""
    Slow.latency_s = latency_s
    place = staged.place(stage, (data / "index.json").read_bytes())
    found = {}
    for name, at in (("source", None), ("staged", place)):
        reader = TokenReader(data, "train", length=LENGTH)
        reader.bytes = Slow(FolderSource(data), at)
        batches = Batches(reader, Sampler(samples=reader.samples, seed=0), rank=0)
        plan = Plan(samples=(samples,), micro_steps=1)
        forget(data)
        forget(place)
        position, taken = 0, []
        for _ in range(steps):
            begun = time.perf_counter()
            position = batches.window(position, plan).taken.end
            taken.append(time.perf_counter() - begun)
            time.sleep(step_s)  # the device computes
        found[name] = {"mean_s": statistics.fmean(taken[1:]), "max_s": max(taken[1:])}
    return {"samples_a_step": samples, "step_s": step_s, **found}


def copied(data: Path, target: Path, how: str) -> float:
    """Seconds until everything is on the disk (synced)."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    forget(data)
    begun = time.perf_counter()
    if how == "ciuic":
        assert Stager(source=FolderSource(data), stage=target, order=staged.shards_of).turn().complete
    elif how == "cp":
        subprocess.run(["cp", "-r", str(data), str(target)], check=True)
    else:
        subprocess.run([how, "-a", f"{data}/", str(target)], check=True)
    subprocess.run(["sync", "-f", str(target)], check=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--latency-ms", type=float, default=8.0)
    parser.add_argument("--samples", type=int, default=500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        data, stage = Path(folder) / "data", Path(folder) / "stage"
        make(data, given.megabytes)
        size = sum(path.stat().st_size for path in data.glob("*.bin"))
        tools = [tool for tool in ("ciuic", "cp", "rsync") if tool == "ciuic" or shutil.which(tool)]
        rounds = [{tool: copied(data, Path(folder) / f"to-{tool}", tool) for tool in tools} for _ in range(3)]
        speeds = {tool: size / min(one[tool] for one in rounds) / 1e6 for tool in tools}
        stage.mkdir()
        Stager(source=FolderSource(data), stage=stage, order=staged.shards_of).turn()
        print(json.dumps({"copy_MB_per_s": speeds, "bytes": size}))
        print(json.dumps(reads(data, stage, given.latency_ms / 1e3, given.samples)))
        for samples in (8, 32):
            print(
                json.dumps(waits(data, stage, given.latency_ms / 1e3, steps=20, step_s=0.2, samples=samples))
            )


if __name__ == "__main__":
    main()
