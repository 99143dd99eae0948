"""Network namespaces as nodes: agents as Slurm would start them, each in its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from contract.beat import read_beat
from contract.config import RunConfig
from contract.control import Control, write_control
from contract.states import ControlPhase
from slurm.create import create_run


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


@contextlib.contextmanager
def agents(config: RunConfig, tmp_path: Path, nodes: Mapping[str, str]) -> Iterator[tuple]:
    """(run, start a node's agent, its beat); `nodes`: name → namespace, agent 0 first."""
    run = create_run(config, tmp_path / "runs")
    for folder in (run.attempt(1).alive, run.attempt(1).beats, run.attempt(1).logs):
        folder.mkdir(parents=True)
    write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    children = []

    def start(node, **environment):
        variables = {name: value for name, value in os.environ.items() if "SLURM" not in name} | {
            "SLURMD_NODENAME": node, "SLURM_PROCID": str(list(nodes).index(node)), "SLURM_JOB_ID": "77",
        }  # fmt: skip
        agent = [sys.executable, "-P", "-m", "slurm.agent", str(run.path), "1"]
        command = ["ip", "netns", "exec", nodes[node], *agent]
        children.append(subprocess.Popen(command, env=variables | environment))

    try:
        yield run, start, lambda node: read_beat(run.attempt(1).beat(node))
    finally:
        for child in children:
            child.kill()
            child.wait(30)
