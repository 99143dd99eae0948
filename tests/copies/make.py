"""What the tests of copies share: runs that want copies, and checkpoints of arbitrary bytes."""

import os
import random
import time
from pathlib import Path

from contract import manifest
from contract.config import dump
from contract.copies.target import Kind
from contract.layout import Root, RunDir
from contract.manifest import Manifest, Shard
from tests.supervisor.conftest import config_of

BUCKET = {"labels": {"ciuic.io/checkpoint-path": "s3://bucket/deepseek"}}


def make_run(folder: Path, kind: Kind, endpoint: str = "", **settings: object) -> RunDir:
    """A run below `folder` with copies of this kind alone; once more: other settings of the same run."""
    run = Root(path=folder / "runs").run(f"t-{os.getpid()}-{abs(hash(folder)) % 10**9}")
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    if kind is Kind.BACKUP:
        (folder / "backup").mkdir(exist_ok=True)
        sections = {"backup": {"directory": str(folder / "backup"), **settings}}
    else:
        sections = {"metadata": BUCKET, "mirror": {"endpoint": endpoint, **settings}}
    run.config.write_text(dump(config_of(**sections)))
    return run


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
            saved_at=time.time(),
        ),
    )
    return directory
