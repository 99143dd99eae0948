"""The process beside rank 0 that feeds the services: ends, with what is left, when rank 0 has closed its standard input."""

import argparse
import os
import sys
import threading
from pathlib import Path

from contract.config import read_resolved
from contract.layout import RunDir
from trainer.trackers.services import feed


def main() -> None:
    """Feed every service that the run wants, each by a thread of its own."""
    parser = argparse.ArgumentParser(prog="python -P -m trainer.trackers")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("attempt", type=int)
    parser.add_argument("generation", type=int)
    parser.add_argument("resumed_at", type=int)
    given = parser.parse_args()
    os.nice(10)
    run, over = RunDir(path=given.run_dir), threading.Event()
    run.trackers.mkdir(exist_ok=True)
    wanted = read_resolved(run.config).trackers
    threads = [
        threading.Thread(
            target=feed,
            args=(name, run, wanted, (given.attempt, given.generation)),
            kwargs={"resumed_at": given.resumed_at, "over": over},
        )
        for name in wanted.services
    ]
    for thread in threads:
        thread.start()
    sys.stdin.buffer.read()
    over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
