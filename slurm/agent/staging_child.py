"""The process that copies the data set to this node's disk, for as long as its agent lives.

    python -P -m slurm.agent.staging_child AGENT_PID RUN_DIR STAGE

Each line on stdout is JSON: how much is here. It looks again now and then: room may have become free, a copy may have
been found damaged and removed.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contract import manifest
from contract.config import RunConfig, read_resolved
from contract.layout import RunDir
from contract.sampling import part_seed, shares
from contract.sources import open_source
from contract.staged import Shard
from slurm.agent.spawner import die_with_parent
from slurm.node.stage import Progress, Stager, in_order_of_use

_AGAIN_S = 15.0
_AFTER_TROUBLE_S = 120.0  # nobody is helped by a server that is asked all the time
_TELL_S = 1.0


def position_of(run: RunDir) -> int:
    """Where the run will most likely go on: at the newest checkpoint that is complete, else at the start."""
    for directory in sorted(manifest.directories(run), reverse=True):
        with contextlib.suppress(OSError, ValueError):
            return manifest.decode((directory / manifest.NAME).read_bytes()).position
    return 0


def stagers_of(config: RunConfig, run: RunDir, stage: Path) -> list[Stager]:
    """A stager for each data set of this run, within one cap."""
    sources = config.data.sources
    share = shares([its.weight for its in sources])
    cap = int(config.node.stage_gb * 1e9)

    def order(part: int) -> Callable[[dict[str, Any]], Sequence[Shard]]:
        seed = config.run.seed if len(sources) == 1 else part_seed(config.run.seed, part)

        def shards(index: dict[str, Any]) -> Sequence[Shard]:
            position = position_of(run) * share[part] // sum(share)
            return in_order_of_use(index, length=config.batch.sequence_length, seed=seed, position=position)

        return shards

    return [
        Stager(
            source=open_source(its.path, config.data.store, os.environ),
            stage=stage,
            order=order(part),
            cap=cap,
        )
        for part, its in enumerate(sources)
    ]


def turn(stagers: Sequence[Stager], told: Callable[[Progress], None]) -> Progress:
    """One turn of each; `told` hears of all together."""
    done = [Progress(of=1)] * len(stagers)  # not complete before each has looked
    for number, stager in enumerate(stagers):

        def tell(progress: Progress, number: int = number) -> None:
            done[number] = progress
            told(together(done))

        stager.told = tell
        done[number] = stager.turn()
    return together(done)


def together(parts: Sequence[Progress]) -> Progress:
    """The progress of several data sets as one."""
    return Progress(
        shards=sum(its.shards for its in parts),
        of=sum(its.of for its in parts),
        bytes=sum(its.bytes for its in parts),
        of_bytes=sum(its.of_bytes for its in parts),
        problem="; ".join(dict.fromkeys(its.problem for its in parts if its.problem)),
    )


class _Teller:
    """A line at once for what is new in kind, now and then for what only grows."""

    def __init__(self) -> None:
        self._said = Progress()
        self._said_at = float("-inf")

    def tell(self, progress: Progress, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if progress == self._said or (not at_once and now - self._said_at < _TELL_S):
            return
        self._said, self._said_at = progress, now
        sys.stdout.write(json.dumps(asdict(progress)) + "\n")
        sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Until the agent ends."""
    die_with_parent(int(arguments[0]))
    run, stage = RunDir(path=Path(arguments[1])), Path(arguments[2])
    os.nice(10)
    stagers, teller = stagers_of(read_resolved(run.config), run, stage), _Teller()
    while True:
        progress = turn(stagers, teller.tell)
        teller.tell(progress, at_once=True)
        time.sleep(_AFTER_TROUBLE_S if progress.problem else _AGAIN_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
