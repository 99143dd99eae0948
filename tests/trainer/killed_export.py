"""An export, to be killed: RUN_DIR TARGET. In files of 25 kB, so that there are several."""

import sys
from functools import partial
from pathlib import Path

import trainer.preload  # noqa: F401 - as the program itself begins
from contract.layout import RunDir
from tests import crash
from trainer import export
from trainer.reshape.hub import write_weights

if __name__ == "__main__":
    export.write_weights = partial(write_weights, shard_bytes=25_000)
    crash.begin()
    export.export(RunDir(path=Path(sys.argv[1])), step=-1, target=Path(sys.argv[2]), dtype="bf16")
    crash.end()
