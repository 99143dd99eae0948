"""What the tests of copies share: checkpoints of arbitrary bytes."""

import random
from pathlib import Path

from contract import manifest
from contract.layout import RunDir
from contract.manifest import Manifest, Shard


def make_checkpoint(
    run: RunDir, step: int, *, attempt: int = 1, generation: int = 1, sizes: tuple[int, ...] = (3000, 70_000)
) -> Path:
    """A complete checkpoint; its bytes follow from its name."""
    directory = run.checkpoint(step, attempt, generation)
    (directory / "sub").mkdir(parents=True)
    shards = []
    for number, size in enumerate(sizes):
        path = directory / ("sub" if number % 2 else ".") / f"rank-{number}.pt"
        path.write_bytes(random.Random(f"{directory.name} {number}").randbytes(size))
        shards.append(
            Shard(path=path.relative_to(directory).as_posix(), size=size, xxh3=manifest.digest_file(path))
        )
    manifest.publish(
        directory,
        Manifest(
            run=run.run_id,
            step=step,
            attempt=attempt,
            generation=generation,
            world_size=1,
            tokens=step,
            position=step,
            shards=tuple(shards),
        ),
    )
    return directory
