"""Ranks that do not find each other: whoever is to blame is named, within the limit, and every process ends."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.states import Cause
from supervisor.core.causes import End, explain

PATIENCE_S = 3.0
PROGRAM = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
from trainer.rendezvous import meet
from trainer.worker import worker_from_environment

worker = worker_from_environment(os.environ)
try:
    store = meet(worker, patience_s=float(sys.argv[1]), timeout=timedelta(seconds=20))
    store.add("done", 1)
    while worker.leads and store.add("done", 0) < worker.world_size:
        pass
    print(json.dumps(["met", ""]))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(processes):
    """Starts a rank; none outlives the test."""

    def begin(
        folder: Path, rank: int, world: int, port: int, address: str = "127.0.0.1"
    ) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "CIUIC_RUN_DIR": str(folder),
            "CIUIC_NODE": f"n{rank + 1}",
            "OMP_NUM_THREADS": "1",
        }
        return processes.start(
            [sys.executable, "-P", "-c", PROGRAM, str(PATIENCE_S)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def outcome(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=60)
    assert out.strip(), err
    kind, text = json.loads(out.splitlines()[-1])
    return kind, text


def explained(kind: str, text: str):
    end = End(
        rank=0,
        node="n1",
        code=1,
        step=0,
        phase="start",
        recorded=True,
        exception_type=kind,
        exception_text=text,
    )
    return explain(end)


def test_all_meet(start, tmp_path):
    port = free_port()
    ranks = [start(tmp_path, rank, 2, port) for rank in range(2)]
    assert [outcome(rank) for rank in ranks] == [("met", ""), ("met", "")]


def test_a_missing_rank_is_named(start, tmp_path):
    port, began = free_port(), time.monotonic()
    ranks = [start(tmp_path, rank, 3, port) for rank in (0, 2)]
    kind, text = outcome(ranks[0])
    assert kind == "RendezvousError"
    assert "rank 1 did not come" in text
    assert "2 of 3 are there" in text
    assert explained(kind, text).cause is Cause.RENDEZVOUS
    assert explained(kind, text).accused == (1,)
    victim = outcome(ranks[1])
    assert victim[0] != "met"
    assert explained(*victim).victim, victim
    assert time.monotonic() - began < 40


def test_a_rank_that_is_there_twice_is_named(start, tmp_path):
    port = free_port()
    ranks = [start(tmp_path, rank, 3, port) for rank in (0, 1, 1)]
    found = [outcome(rank) for rank in ranks]
    said = [text for kind, text in found if kind == "RendezvousError" and "more than once" in text]
    assert said, found
    assert said[0].count("pid") == 2
    assert explained("RendezvousError", said[0]).accused == (1,)
    assert not [kind for kind, _ in found if kind == "met"]


def test_an_unreachable_master_is_named_by_whoever_cannot_reach_it(start, tmp_path):
    kind, text = outcome(start(tmp_path, 1, 2, free_port()))
    assert kind == "RendezvousError"
    assert "rank 1 cannot reach rank 0 at 127.0.0.1" in text
    assert explained(kind, text).cause is Cause.RENDEZVOUS


def test_a_port_that_is_taken_is_said(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        kind, text = outcome(start(tmp_path, 0, 2, taken.getsockname()[1]))
    assert kind == "RendezvousError"
    assert explained(kind, text).cause is Cause.PORT, text
