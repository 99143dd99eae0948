"""Sums up one rank's trace: its facts come as JSON on standard input. In a process of its own, which has no GIL to hold."""

import gzip
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from contract.profile import profile_from, trace_of, write_profile
from trainer.profiling.summary import summarise


def main() -> None:
    """Compress the trace, write what it says, and make room for the next profile."""
    os.nice(10)
    task = json.load(sys.stdin)
    profile, raw, keep = profile_from(task["profile"]), Path(task["trace"]), int(task["keep"])
    trace = json.loads(raw.read_bytes())
    with raw.open("rb") as source, gzip.open(trace_of(raw.parent, profile.rank), "wb", 3) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    raw.unlink()
    write_profile(raw.parent, replace(profile, timing=summarise(trace)))
    if profile.rank == profile.ranks[0]:
        for old in sorted(raw.parent.parent.iterdir())[:-keep]:
            shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    main()
