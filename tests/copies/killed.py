"""What is killed: a turn of the copier, and a restore as a starting rank 0 makes it. Each as a process of its own.

copy RUN KIND EPOCH PARENT | copy-in-order … (one request at a time) | restore RUN KIND NAME
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import obstore  # noqa: F401 - here once, not in every child

from contract.config import read_resolved
from contract.copies.fetch import fetch
from contract.copies.pace import Pace
from contract.copies.s3 import S3Store
from contract.copies.target import Kind, open_store
from contract.layout import RunDir
from supervisor.copies.__main__ import main
from tests import crash


def restore(run: RunDir, kind: Kind, name: str, environment: Mapping[str, str]) -> bool:
    store = open_store(read_resolved(run.config), kind, run.run_id, environment)
    pace = Pace(0.0, clock=time.monotonic, wait=time.sleep)
    return fetch(run, name, store, moved=lambda _: None, pace=pace).checkpoint.valid


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "copy-in-order":
        S3Store.workers = 1
    crash.begin()
    if what == "restore":
        code = 0 if restore(RunDir(path=Path(rest[0])), Kind(rest[1]), rest[2], os.environ) else 1
    else:
        code = main(rest)
    crash.end()
    sys.exit(code)
