"""`python -P -m slurm.agent RUN_DIR ATTEMPT`: the one process per node that the executor starts."""

import ctypes
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from contract.config import ConfigError, read_resolved
from contract.control import Claim, claim_attempt
from contract.files import FileLock
from contract.layout import RunDir
from contract.states import ExitCode
from slurm.agent.identity import Identity, identify
from slurm.agent.loop import Agent

_PR_SET_CHILD_SUBREAPER = 36
_LOCK_PATIENCE_S = 5.0  # whoever asks whether the lock is held, holds it for a moment


def main(arguments: Sequence[str]) -> int:
    """Claim the attempt, or refuse without a trace; then work."""
    try:
        run, attempt = RunDir(path=Path(arguments[0])), int(arguments[1])
        me = identify()
        config = read_resolved(run.config)
    except (IndexError, ValueError, KeyError, ConfigError) as error:
        sys.stderr.write(f"slurm.agent: {type(error).__name__}: {error}\n")
        return ExitCode.CONFIG
    mine = Claim(job_id=me.job_id, restart=me.restart)
    holder = claim_attempt(run, attempt, mine)
    if holder != mine:
        sys.stderr.write(
            f"attempt {attempt} of {run.run_id} belongs to job {holder.job_id}, restart {holder.restart}\n"
        )
        return ExitCode.REFUSED
    lock = FileLock(run.attempt(attempt).alive_of(me.node))
    if not _live(lock, me):
        sys.stderr.write(f"another agent of node {me.node} is alive in attempt {attempt} of {run.run_id}\n")
        return ExitCode.REFUSED
    # What dead workers leave behind becomes our child, so that it can be seen and reaped.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    agent = Agent(run, attempt, config, me)
    try:
        return agent.work()
    except Exception:  # the process edge: whatever it was, it must stand in the log that people read
        agent.last_words(traceback.format_exc())
        raise


def _live(lock: FileLock, me: Identity) -> bool:
    """Take the lock that is our sign of life."""
    lock.path.parent.mkdir(exist_ok=True)
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while not lock.acquire(f"{me.host} {me.job_id}\n"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
