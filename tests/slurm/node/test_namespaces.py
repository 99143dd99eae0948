"""Two network namespaces as nodes with two links each, one of them slow: what is chosen, probed and measured."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from contract.beat import read_beat
from contract.control import Control, read_go, write_control
from contract.states import ControlPhase
from slurm.create import create_run
from tests.slurm.conftest import config_of, wait_for

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


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)


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
    return done.returncode, json.loads(done.stdout)


def test_a_tie_that_the_probe_decides(nodes):
    code, found = tuned(nodes["a"])
    assert (code, found["GLOO_SOCKET_IFNAME"]) == (0, "eth0"), "the default route, until a probe"
    assert "a probe between the nodes decides" in found["reason"]
    measured = {}
    for kind in ("fast", "slow"):
        sink = f"""
            import sys
            from slurm.node.probe import Sink
            with Sink("{NODES["b"][kind][1]}") as sink:
                print(sink.port, flush=True)
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


@pytest.mark.train
@pytest.mark.slow
def test_an_all_reduce_over_each(nodes):
    """Gloo over the interface that its variable names: the number that the choice is about."""
    program = textwrap.dedent("""
        import os, sys, time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        data = torch.ones(2 << 20)
        dist.all_reduce(data)
        start = time.perf_counter()
        for _ in range(3):
            dist.all_reduce(data)
        dist.barrier()
        print(3 * data.numel() * 4 / (time.perf_counter() - start) / 1e6)
        dist.destroy_process_group()
    """)
    speeds = {}
    for kind in ("fast", "slow"):
        workers = []
        for rank, node in enumerate(NODES):
            link, _ = NODES[node][kind]
            environment = os.environ | {
                "GLOO_SOCKET_IFNAME": link, "MASTER_ADDR": NODES["a"][kind][1], "MASTER_PORT": "29511",
                "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = ["ip", "netns", "exec", nodes[node], sys.executable, "-P", "-c", program]
            workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        outputs = [worker.communicate(timeout=120)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0]
        speeds[kind] = float(outputs[0].split()[-1])
    print(f"all-reduce of 8 MB: fast {speeds['fast']:.0f} MB/s, slow {speeds['slow']:.1f} MB/s")
    assert speeds["fast"] > 2 * speeds["slow"]


@contextlib.contextmanager
def agents(nodes, tmp_path, **job):
    """Starts agents as Slurm does, in these namespaces, on demand; the stand-in trains."""
    config = config_of("--step-time", "0.05", run={"steps": 5000}, job={"nodes": 2, **job})
    run = create_run(config, tmp_path / "runs")
    for folder in (run.attempt(1).alive, run.attempt(1).beats, run.attempt(1).logs):
        folder.mkdir(parents=True)
    write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    children = []

    def start(node):
        environment = {name: value for name, value in os.environ.items() if "SLURM" not in name} | {
            "SLURMD_NODENAME": node, "SLURM_PROCID": str("ab".index(node)), "SLURM_JOB_ID": "77",
        }  # fmt: skip
        command = [
            "ip",
            "netns",
            "exec",
            nodes[node],
            sys.executable,
            "-P",
            "-m",
            "slurm.agent",
            str(run.path),
            "1",
        ]
        children.append(subprocess.Popen(command, env=environment))

    def beat(node):
        return read_beat(run.attempt(1).beat(node))

    try:
        yield run, start, beat
    finally:
        for child in children:
            child.kill()
            child.wait(30)


def test_agents_that_would_each_choose_another_meet_on_one_network(nodes, tmp_path):
    ip(
        "-n", nodes["b"], "route", "replace", "default", "dev", "net7"
    )  # alone it would take this one, and a eth0
    with agents(nodes, tmp_path) as (run, start, beat):
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
    with agents(nodes, tmp_path) as (_, start, beat):
        start("b")
        wait_for(lambda: beat("b") and beat("b").ready_for == 1 and beat("b").health.get("network"), 60, "b")
        ip("-n", nodes["b"], "addr", "flush", "dev", "eth0")
        ip("-n", nodes["b"], "addr", "flush", "dev", "net7")
        start("a")
        wait_for(lambda: beat("b").done_code == 1, 60, "b to leave")
        said = " ".join(beat("b").notes)
        assert "this node is not fit: network: eth0 (10.77.2.2) was usable when it was chosen" in said
