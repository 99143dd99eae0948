"""Two network namespaces as nodes with two links each, one of them slow: what is chosen, probed and measured."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contract.control import read_go
from tests.slurm.conftest import config_of, wait_for
from tests.slurm.node.spaces import agents, ip
from tests.supervisor.schemas import check

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"),
]
# Both links advertise what a pair of virtual interfaces does, 10 Gb/s; one is shaped.
SLOW_MBIT = 100
NODES = {
    "a": {"fast": ("ib0", "10.77.1.1"), "slow": ("eth0", "10.77.2.1")},
    "b": {"fast": ("net7", "10.77.1.2"), "slow": ("eth0", "10.77.2.2")},
}


def inside(node: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ip", "netns", "exec", node, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def nodes():
    names = {name: f"ciuic-{os.getpid()}-{name}" for name in NODES}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for kind in ("fast", "slow"):
            (mine, _), (theirs, _) = NODES["a"][kind], NODES["b"][kind]
            ip("link", "add", mine, "netns", names["a"], "type", "veth",
               "peer", "name", theirs, "netns", names["b"])  # fmt: skip
            for node, links in NODES.items():
                link, address = links[kind]
                ip("-n", names[node], "addr", "add", f"{address}/24", "dev", link)
                ip("-n", names[node], "link", "set", link, "up")
        for node, links in NODES.items():
            slow, _ = links["slow"]
            subprocess.run(
                ["tc", "-n", names[node], "qdisc", "add", "dev", slow, "root", "tbf",
                 "rate", f"{SLOW_MBIT}mbit", "burst", "128k", "latency", "50ms"],
                check=True, capture_output=True, timeout=20,
            )  # fmt: skip
            # The default route leads over the slow link, as it does on many clusters.
            ip("-n", names[node], "route", "add", "default", "dev", slow)
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


def tuned(node: str, *options: str, **environment: str) -> tuple[int, dict]:
    code = "import ciuic, sys; sys.argv[0] = 'ciuic'; ciuic.main()"
    done = inside(node, sys.executable, "-P", "-c", code, "tune", "--json", *options, **environment)
    return done.returncode, check("tune", done.stdout)


def test_a_tie_that_the_probe_decides(nodes):
    code, found = tuned(nodes["a"])
    assert (code, found["GLOO_SOCKET_IFNAME"]) == (0, "eth0"), "the default route, until a probe"
    assert "a probe between the nodes decides" in found["reason"]
    measured = {}
    for kind in ("fast", "slow"):
        sink = f"""
            import sys
            from slurm.node.probe import Sink
            with Sink(["{NODES["b"][kind][1]}"]) as sink:
                print(*sink.ports.values(), flush=True)
                sys.stdin.read()
        """
        send = f"""
            import sys
            from slurm.node.probe import throughput
            got = throughput("{NODES["a"][kind][1]}", "{NODES["b"][kind][1]}", int(sys.argv[1]), limit_s=1.0)
            print(got.bits_per_s, got.problem)
        """
        listening = [
            "ip",
            "netns",
            "exec",
            nodes["b"],
            sys.executable,
            "-P",
            "-c",
            textwrap.dedent(sink),
        ]
        with subprocess.Popen(listening, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            port = server.stdout.readline().strip()
            done = inside(nodes["a"], sys.executable, "-P", "-c", textwrap.dedent(send), port)
            server.stdin.close()
        assert done.returncode == 0, done.stderr
        measured[kind] = float(done.stdout.split()[0])
    print(f"probe: fast {measured['fast'] / 1e9:.2f} Gb/s, slow {measured['slow'] / 1e9:.3f} Gb/s")
    assert measured["slow"] < 1.5 * SLOW_MBIT * 1e6
    assert measured["fast"] > 4 * measured["slow"]


def test_the_wrong_explicit_choice_is_obeyed(nodes):
    _, found = tuned(nodes["a"], NCCL_SOCKET_IFNAME="=ib0", GLOO_SOCKET_IFNAME="ib")
    assert (found["NCCL_SOCKET_IFNAME"], found["address"]) == ("=ib0", "10.77.1.1")
    assert "no interface ib here" in found["reason"]
    _, found = tuned(nodes["a"], "--interface", "eth0")
    assert (found["GLOO_SOCKET_IFNAME"], found["address"]) == ("eth0", "10.77.2.1")


def test_a_link_that_died_is_named(nodes):
    for link in ("ib0", "eth0"):
        ip("-n", nodes["a"], "link", "set", link, "down")
    code, found = tuned(nodes["b"])
    assert code == 1
    assert {item["name"] for item in found["rejected"]} >= {"net7", "eth0"}
    assert "net7 (lowerlayerdown)" in found["reason"] or "net7 (down)" in found["reason"]
    ip("-n", nodes["a"], "link", "set", "ib0", "up")
    code, found = tuned(nodes["b"])
    assert (code, found["NCCL_SOCKET_IFNAME"]) == (0, "=net7")


def at_work(nodes, tmp_path, **changes):
    """Agents on these two nodes, started on demand; the stand-in trains."""
    config = config_of("--step-time", "0.05", run={"steps": 5000}, **{"job": {"nodes": 2}} | changes)
    return agents(config, tmp_path, nodes)


def test_agents_that_would_each_choose_another_meet_on_one_network(nodes, tmp_path):
    ip(
        "-n", nodes["b"], "route", "replace", "default", "dev", "net7"
    )  # alone it would take this one, and a eth0
    with at_work(nodes, tmp_path) as (run, start, beat):
        for node in "ab":
            start(node)
        go = wait_for(lambda: read_go(run, 1, 1), 60, "the go file")
        assert go.master == "10.77.1.1"
        for node, interface in (("a", "ib0"), ("b", "net7")):
            seen = wait_for(
                lambda node=node: beat(node) if beat(node) and beat(node).workers else None, 60, node
            )
            pid = wait_for(lambda node=node: beat(node).workers[0].pid, 60, "a pid")
            environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert f"GLOO_SOCKET_IFNAME={interface}" in environment
            assert f"NCCL_SOCKET_IFNAME=={interface}" in environment
            assert seen.address == NODES[node]["fast"][1]


def test_a_link_that_dies_between_choice_and_start_is_named(nodes, tmp_path):
    with at_work(nodes, tmp_path) as (_, start, beat):
        start("b")
        wait_for(lambda: beat("b") and beat("b").ready_for == 1 and beat("b").health.get("network"), 60, "b")
        ip("-n", nodes["b"], "addr", "flush", "dev", "eth0")
        ip("-n", nodes["b"], "addr", "flush", "dev", "net7")
        start("a")
        wait_for(lambda: beat("b").done_code == 1, 60, "b to leave")
        said = " ".join(beat("b").notes)
        assert "this node is not fit: network: eth0 (10.77.2.2) was usable when it was chosen" in said


ALL_REDUCE = [
    sys.executable,
    "-P",
    "-m",
    "trainer.measure.collectives",
    "gloo",
    "0.5",
    "all-reduce",
    "8388608",
]


def all_reduce(nodes, tmp_path, **node):
    """(MB/s of an all-reduce that these agents start, what node a's log says)."""
    job = {"nodes": 2, "command": ALL_REDUCE, "warm": False}
    with at_work(nodes, tmp_path, job=job, node=node) as (run, start, _):
        for name in "ab":
            start(name)
        log = run.attempt(1).log("a")

        def measured():
            lines = log.read_text().splitlines() if log.exists() else []
            return next((line[line.index("{") :] for line in lines if '"rows"' in line), None)

        row = json.loads(wait_for(measured, 90, "the measurement"))["rows"][0]
        return row["algorithm_bytes_per_s"] / 1e6, log.read_text()


@pytest.mark.train
@pytest.mark.slow
def test_the_probe_takes_the_fast_one_and_the_wrong_explicit_choice_is_obeyed_and_flagged(nodes, tmp_path):
    """Both advertise the same, both default routes lead over the slow one; what it is about is a real all-reduce."""
    chosen, said = all_reduce(nodes, tmp_path / "chosen")
    assert "as fast as 10.77.1.0/24: a probe between two nodes decides: 10.77.1.0/24 is faster" in said
    wrong, said = all_reduce(nodes, tmp_path / "wrong", interface="eth0")
    assert "eth0 is set and obeyed, though 10.77.1.0/24 is faster" in said
    print(f"all-reduce of 8 MB: chosen {chosen:.0f} MB/s, explicit eth0 {wrong:.1f} MB/s")
    assert wrong < SLOW_MBIT / 8 * 1.2
    assert chosen > 4 * wrong
