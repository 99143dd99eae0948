"""Who this agent is: from the variables of Slurm, or of submitit's local executor."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Identity:
    """`index` is the task's number in the job; agent 0 starts generation 1. `restart`: Slurm's count of requeues."""

    node: str
    index: int
    job_id: str
    restart: int
    host: str
    local: bool


def identify(environment: Mapping[str, str] = os.environ) -> Identity:
    """Our identity.

    Raises:
        KeyError: neither Slurm nor submitit's local executor started us; names the variable that is missing.
    """
    host = socket.gethostname()
    if environment.get("SUBMITIT_EXECUTOR") == "local":
        index = environment["SUBMITIT_LOCAL_GLOBALID"]
        job_id = environment["SUBMITIT_LOCAL_JOB_ID"]
        return Identity(node=index, index=int(index), job_id=job_id, restart=0, host=host, local=True)
    return Identity(
        node=environment["SLURMD_NODENAME"],
        index=int(environment["SLURM_PROCID"]),
        job_id=environment["SLURM_JOB_ID"],
        restart=int(environment.get("SLURM_RESTART_COUNT", "0")),
        host=host,
        local=False,
    )
