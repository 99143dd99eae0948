"""How long a sample takes to read, from the source and from the node's own disk, out of the page cache where possible.

python -P -m trainer.measure.reads DATA LENGTH SAMPLES SEED [STAGE]      # one line of JSON

DATA: a prepared directory, `s3://bucket/prefix`, or a recipe, which says how its store is reached. LENGTH 0: the recipe's.
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
from contract.config import load
from contract.config.data import Data, in_storage
from trainer.data.corpora import Corpora, open_each
from trainer.errors import ConfigError

LENGTH = 4096  # tokens of a sample, where no recipe tells


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


def compare(data: Data, stage: Path | None, *, length: int, samples: int, seed: int) -> dict[str, Any]:
    """The same samples in the same order from both.

    Raises:
        ConfigError: this cannot be trained from.
        OSError: a sample could not be read.
    """
    weights = [its.weight for its in data.sources]
    source = Corpora(open_each(data, "train", length=length), weights)
    chance = random.Random(seed)
    numbers = [chance.randrange(source.samples) for _ in range(max(2, samples))]
    for corpus in data.sources:
        if not in_storage(corpus.path):
            forget(Path(corpus.path))
    found: dict[str, Any] = {
        "samples": len(numbers),
        "length": length,
        "source": distribution(source.sample, numbers),
    }
    if stage is not None:
        readers = open_each(data, "train", length=length, stage=stage)
        for reader in readers:
            place = staged.place(stage, reader.kept[0])
            if place.is_dir():
                forget(place)
        found["staged"] = distribution(Corpora(readers, weights).sample, numbers)
        copies = sum(reader.bytes.from_copies for reader in readers)
        found["staged_share"] = copies / (copies + sum(reader.bytes.from_source for reader in readers))
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; exit 1, and why, when there is none."""
    place, length, samples, seed, *stage = arguments
    try:
        data, usual, disk = _named(place)
        chosen = Path(stage[0]) if stage else disk
        found = compare(data, chosen, length=int(length) or usual, samples=int(samples), seed=int(seed))
    except (ConfigError, ValueError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _named(place: str) -> tuple[Data, int, Path | None]:
    """What to read, the tokens of a sample, and where copies of it are."""
    if not place.endswith(".toml"):
        return Data(path=place), LENGTH, None
    config = load(Path(place))
    return config.data, config.batch.sequence_length, staged.directory(config.node.stage, os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
