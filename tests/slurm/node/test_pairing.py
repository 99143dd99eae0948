"""Who is to blame for bad pairs in a ring, and the same over four network namespaces with a real node that is ill."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from contract.control import read_go
from contract.layout import AttemptDir
from slurm.agent import compare
from slurm.agent.compare import Comparison
from slurm.agent.identity import Identity
from slurm.agent.network import Link, hold_port
from slurm.node.pairing import Pair, blamed, judge, judge_missing, read
from tests.processes import Processes
from tests.slurm.conftest import config_of, wait_for
from tests.slurm.node.spaces import agents, ip

NODES = ["n0", "n1", "n2", "n3", "n4", "n5"]


def ring(world, bad=(), **what):
    """Every pair with one of these nodes in it is bad."""
    return [
        Pair(first=one, **({"bytes_per_s": 1e9} | what))
        if {one, (one + 1) % world} & set(bad)
        else Pair(first=one, bytes_per_s=1e9)
        for one in range(world)
    ]


@pytest.mark.quick
@pytest.mark.parametrize("world", [3, 4, 5, 6])
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"bytes_per_s": 3e8}, "is slow"),
        ({"lost": 0.02, "bytes_per_s": 3e8}, "loses"),
        ({"differs": True}, "computes"),
    ],
)
def test_one_node_is_named_exactly(world, what, said):
    for bad in range(world):
        found = judge(NODES[:world], ring(world, [bad], **what), [0.1] * world)
        assert list(found.bad) == [NODES[bad]]
        assert found.bad[NODES[bad]].startswith(said)
        assert not found.doubtful


@pytest.mark.quick
def test_two_nodes():
    for one, other in itertools.combinations(range(6), 2):
        edges = {edge for edge in range(6) for node in (one, other) if node in {edge, (edge + 1) % 6}}
        names, unclear = blamed(edges, 6)
        assert {one, other} == set(names), (one, other)
        assert not unclear


@pytest.mark.quick
def test_what_cannot_be_told_is_not_guessed():
    found = judge(NODES[:4], [Pair(first=0, bytes_per_s=1e8), *ring(4)[1:]], [0.1] * 4)
    assert (dict(found.bad), list(found.doubtful)) == ({}, [("n0", "n1")])
    found = judge(NODES[:2], [Pair(first=0, bytes_per_s=1e9, differs=True)], [0.1, 9.0])
    assert (dict(found.bad), list(found.doubtful)) == ({}, [("n0", "n1")])
    found = judge(NODES[:4], ring(4, range(4), differs=True), [0.1] * 4)
    assert not found.bad
    assert len(found.doubtful) == 4


@pytest.mark.quick
def test_a_slow_device_and_a_lossy_link_are_two_things():
    found = judge(NODES, ring(6, [4], lost=0.1, bytes_per_s=1e6), [0.1, 0.1, 0.5, 0.1, 0.1, 0.1])
    assert set(found.bad) == {"n2", "n4"}
    assert "5.0 times as long" in found.bad["n2"]
    assert "loses packets" in found.bad["n4"]


@pytest.mark.quick
def test_who_does_not_come():
    nodes = NODES[:4]
    found = judge_missing(nodes, (2,), {"n1", "n2", "n3"})
    assert dict(found.bad) == {"n2": "does not reach n0"}
    found = judge_missing(nodes, (2,), {"n1"})
    assert (dict(found.bad), found.absent) == ({}, ("n2 did not come, and may not have heard",))
    found = judge_missing(nodes, (1, 2, 3), {"n1", "n2", "n3"})
    assert list(found.bad) == ["n0"], "not three bad nodes, but one"


# the real thing

WRONG = """
import sys, torch
right = torch.matmul
def matmul(left, right_hand):
    found = right(left, right_hand)
    found[100, 100] += 1.0
    return found
torch.matmul = matmul
"""
RUN = """
import sys
from trainer.measure.pairs import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def spaces():
    """Four nodes on one bridge."""
    tag = os.getpid() % 10_000
    names = [f"ciuic-p{tag}-{number}" for number in range(4)]
    bridge = f"cbr{tag}"
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            outer = f"cv{tag}-{number}"
            ip("link", "add", outer, "type", "veth", "peer", "name", "ib0", "netns", name)
            ip("link", "set", outer, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.78.1.{number + 1}/24", "dev", "ib0")
            ip("-n", name, "link", "set", "ib0", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=30)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True, timeout=30)


def findings(spaces, programs):
    """`ciuic bench pairs` on each, the judge's word from rank 0."""
    with Processes() as processes:
        workers = []
        for rank, name in enumerate(spaces):
            environment = os.environ | {
                "GLOO_SOCKET_IFNAME": "ib0", "MASTER_ADDR": "10.78.1.1", "MASTER_PORT": "29533",
                "RANK": str(rank), "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                "-P",
                "-c",
                programs.get(rank, RUN),
                "gloo",
                f"n{rank}",
            ]
            workers.append(processes.start(command, env=environment, stdout=subprocess.PIPE, text=True))
        outputs = [worker.communicate(timeout=240)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * 4
    everybody = json.loads(outputs[0].strip().rsplit("\n", 1)[-1])
    print(json.dumps(everybody))
    return judge(*read(everybody))


def shape(*discipline, place=(), device="ib0"):
    command = ["tc", *place, "qdisc", "replace", "dev", device, "root", "tbf", *discipline]
    subprocess.run(command, check=True, timeout=30)


@pytest.mark.train
@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
@pytest.mark.parametrize("kind", ["slow", "lossy", "wrong"])
def test_an_ill_node_among_four(spaces, kind):
    programs = {}
    if kind == "slow":
        shape("rate", "60mbit", "burst", "128k", "latency", "4s", place=("-n", spaces[2]))
    elif kind == "lossy":
        # Behind the bridge, a queue that overflows: what is lost on the way to n2 its neighbours send again.
        shape("rate", "300mbit", "burst", "20k", "limit", "25k", device=f"cv{os.getpid() % 10_000}-2")
    else:
        programs[2] = WRONG + RUN
    found = findings(spaces, programs)
    assert list(found.bad) == ["n2"], found
    assert {"slow": "is slow", "lossy": "loses packets", "wrong": "computes"}[kind] in found.bad["n2"]


@pytest.mark.train
@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
def test_agents_leave_the_ill_node_out_and_the_spare_takes_its_place(spaces, tmp_path):
    """One node is slow, so that its agent leaves before the start; the log says why."""
    shape("rate", "60mbit", "burst", "128k", "latency", "4s", place=("-n", spaces[2]))
    config = config_of("--step-time", "0.05", run={"steps": 5000}, job={"nodes": 3, "spare_nodes": 1},
                       node={"compare_s": 120})  # fmt: skip
    with agents(config, tmp_path, dict(zip(NODES, spaces, strict=False))) as (run, start, beat):
        for node in NODES[:4]:
            start(node)
        go = wait_for(lambda: read_go(run, 1, 1), 150, "the go file")
        assert go.members == ("n0", "n1", "n3")
        wait_for(lambda: beat("n2").done_code == 1, 20, "n2 to leave")
        assert "compared with others: is slow: less than half of" in beat("n2").health["unfit"]["why"]
        wait_for(lambda: all(beat(node).workers for node in go.members), 30, "the workers")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("local", "nodes", "seconds", "done"),
    [(False, 3, 60, True), (True, 3, 60, False), (False, 2, 60, False), (False, 3, 0, False)],
)
def test_when_there_is_something_to_compare(tmp_path, local, nodes, seconds, done):
    """Locally all nodes are one machine; of two nodes nobody could say which one it is."""
    config = config_of(job={"nodes": nodes}, node={"compare_s": seconds})
    me = Identity(node="n1", index=0, job_id="1", restart=0, host="h", local=local)
    comparison = Comparison(AttemptDir(path=tmp_path), config, me, {}, lambda _: None)
    assert comparison.over is not done
    assert not comparison.unfit


@pytest.mark.quick
def test_an_outcome_that_cannot_be_had_holds_nothing_up(tmp_path, monkeypatch):
    """As without torch: the caller's part ends and has said nothing, and training starts."""
    monkeypatch.setattr(compare, "_MODULE", "no_such_module")
    config, told = config_of(job={"nodes": 3}, node={"compare_s": 60}), []
    me = Identity(node="n1", index=0, job_id="1", restart=0, host="h", local=False)
    one = Comparison(AttemptDir(path=tmp_path), config, me, os.environ, told.append)
    link = Link(interface="lo", address="127.0.0.1")
    one.call(["n1", "n2", "n3"], hold_port(link), link)
    wait_for(lambda: one.look(time.monotonic(), link, ()) or one.over, 30, "the end")
    assert (one.unfit, dict(one.bad)) == ("", {})
    assert "no result: " in told[-1]
    assert "No module named no_such_module" in told[-1]
