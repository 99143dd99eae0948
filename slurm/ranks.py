"""Starts a program that measures between ranks: all ranks here, or the one rank that this Slurm task is."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from slurm.hostlist import expand

_PORT = 29_400


class RanksError(Exception):
    """A rank failed or did not end in time; the message is for people."""


def run(module: str, arguments: Sequence[str], *, ranks: int, limit_s: float) -> str:
    """Run the program on all ranks. Returns what rank 0 printed last; "" when rank 0 is another task.

    Raises:
        RanksError: see there.
    """
    mine = as_task(os.environ)
    if mine is not None:
        return _wait([_start(module, arguments, mine)], limit_s)[0]
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [
        _start(
            module,
            arguments,
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(ranks)
    ]
    return _wait(children, limit_s)[0]


def as_task(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Torchrun's variables for this task of an `srun` with more than one, None outside of one. What is set stays."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {}
    tasks = int(environment.get("SLURM_NTASKS", "1"))
    if "SLURM_PROCID" not in environment or tasks < 2:
        return None
    nodes = expand(environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"])
    port = _PORT + int(environment.get("SLURM_JOB_ID", "0")) % 10_000
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": str(tasks),
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": environment.get("MASTER_ADDR", nodes[0]),
        "MASTER_PORT": environment.get("MASTER_PORT", str(port)),
    }


def _start(module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **variables}
    command = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _wait(children: Sequence[subprocess.Popen[str]], limit_s: float) -> list[str]:
    """The last line of each."""
    try:
        ends = [child.communicate(timeout=limit_s) for child in children]
    except subprocess.TimeoutExpired:
        raise RanksError(f"no end within {limit_s:.0f} s: a rank hangs, or never came") from None
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()
    for rank, (child, (_, said)) in enumerate(zip(children, ends, strict=True)):
        if child.returncode:
            last = said.strip().rsplit("\n", 1)[-1]
            raise RanksError(f"rank {rank} ended with {child.returncode}: {last[:300]}")
    return [out.strip().rsplit("\n", 1)[-1] for out, _ in ends]
