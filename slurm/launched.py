"""The callable that submitit runs on each node. In a module of its own, so that the pickle holds only its name."""

import os
import sys


def become_agent(run_dir: str, attempt: int) -> None:
    """Replace this process with the node agent.

    `exec` gives SIGTERM its default back (submitit's own handler swallows it) and lets the agent's exit code
    reach the executor.
    """
    os.execv(sys.executable, [sys.executable, "-P", "-m", "slurm.agent", run_dir, str(attempt)])  # noqa: S606
