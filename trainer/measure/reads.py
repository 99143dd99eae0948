"""How long a sample takes to read, from the source and from the node's own disk, out of the page cache where possible.

python -P -m trainer.measure.reads DATA LENGTH SAMPLES SEED [STAGE]      # one line of JSON
"""

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contract import staged
from contract.config.data import INDEX
from trainer.data.reader import TokenReader


def forget(directory: Path) -> None:
    """Ask the kernel to drop what it holds of these files. Those that others have mapped stay."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def distribution(read: Callable[[int], object], numbers: Sequence[int]) -> dict[str, float]:
    """Seconds of each read: median, 99th percentile, mean and the longest."""
    taken = []
    for number in numbers:
        begun = time.perf_counter()
        read(number)
        taken.append(time.perf_counter() - begun)
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return {"p50_s": cuts[49], "p99_s": cuts[98], "mean_s": statistics.fmean(taken), "max_s": max(taken)}


def compare(data: Path, stage: Path | None, *, length: int, samples: int, seed: int) -> dict[str, Any]:
    """The same samples in the same order from both."""
    source = TokenReader(data, "train", length=length)
    chance = random.Random(seed)
    numbers = [chance.randrange(source.samples) for _ in range(max(2, samples))]
    forget(data)
    found: dict[str, Any] = {
        "samples": len(numbers),
        "length": length,
        "source": distribution(source.sample, numbers),
    }
    if stage is not None:
        place = staged.place(stage, (data / INDEX).read_bytes())
        if place.is_dir():
            forget(place)
        reader = TokenReader(data, "train", length=length, stage=stage)
        found["staged"] = distribution(reader.sample, numbers)
        reads = reader.bytes.from_copies + reader.bytes.from_source
        found["staged_share"] = reader.bytes.from_copies / reads
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the comparison."""
    data, length, samples, seed, *stage = arguments
    found = compare(
        Path(data),
        Path(stage[0]) if stage else None,
        length=int(length),
        samples=int(samples),
        seed=int(seed),
    )
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
