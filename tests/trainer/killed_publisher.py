"""The publisher without torch, to be killed: a save of step 3, or the removal of what retention gives up."""

import sys
from pathlib import Path

from contract.layout import RunDir, checkpoint_name
from contract.manifest import Manifest
from contract.retention import Keep
from tests import crash
from trainer.publish import prune, publish, write_shard

KEPT = Keep(last=2, every_steps=5, best=1)


def save(run: RunDir, step: int, *, val_loss: float | None = None) -> None:
    """Two ranks' shards one after the other, then the manifest."""
    directory = run.checkpoints / checkpoint_name(step, 1, 1)
    directory.mkdir()
    shards = tuple(
        write_shard(directory, f"rank-{rank:05d}.pt", lambda file: file.write(content(step)), lambda: None)
        for rank in range(2)
    )
    whole = Manifest(
        run=run.run_id,
        step=step,
        attempt=1,
        generation=1,
        world_size=2,
        tokens=step,
        position=step,
        shards=shards,
        val_loss=val_loss,
    )
    publish(run, whole)


def content(step: int) -> bytes:
    return b"weights of step %d" % step * 1000


if __name__ == "__main__":
    place = RunDir(path=Path(sys.argv[2]))
    crash.begin()
    if sys.argv[1] == "save":
        save(place, 3)
    else:
        done = prune(place, KEPT, at=(1, 1))
        assert done.removed, done.problem
    crash.end()
