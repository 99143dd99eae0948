"""All-reduce over the network that the agents choose, against the interface of the default route. Needs root.

    .venv/bin/python -P benchmarks/network.py [--tries 3] [--no-write]      # about four minutes

Two network namespaces are two nodes with two links each that advertise the same rate; one is shaped to less, and the
default routes lead over it, as they do on many clusters. Node agents are started as Slurm would start them; the program
that they start measures. Ratios are those of the links: what is shown is that the choice is the right one, that it
reaches the collective, and what it is worth there.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.document import put
from tests.slurm.conftest import config_of
from tests.slurm.node.spaces import agents, ip

SIZES = (1 << 20, 16 << 20)
MEASURE = [sys.executable, "-P", "-m", "trainer.measure.collectives", "gloo", "1.0", "all-reduce"]
# (rate of the link over which the default route leads, of the other one), Mb/s
CASES = ((100, 1000), (770, 1000), (1000, 1000))


@contextlib.contextmanager
def nodes(default: int, other: int) -> Iterator[dict[str, str]]:
    """Two namespaces; `eth0` has the default route."""
    names = {name: f"ciuic-b{os.getpid()}-{name}" for name in "ab"}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for index, link in enumerate(("eth0", "eth1")):
            ip("link", "add", link, "netns", names["a"], "type", "veth",
               "peer", "name", link, "netns", names["b"])  # fmt: skip
            for number, name in enumerate(names.values(), start=1):
                ip("-n", name, "addr", "add", f"10.79.{index}.{number}/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")
                rate = f"{(default, other)[index]}mbit"
                shape = ("root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms")
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", link, *shape], check=True)
        for name in names.values():
            ip("-n", name, "route", "add", "default", "dev", "eth0")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def measured(where: dict[str, str], interface: str) -> tuple[dict[int, float], str]:
    """(size → MB/s of the all-reduce that agents start on these nodes, the interface that was taken)."""
    job = {"nodes": 2, "command": [*MEASURE, *map(str, SIZES)], "warm": False}
    config = config_of(run={"steps": 1}, job=job, node={"interface": interface})
    with tempfile.TemporaryDirectory() as folder, agents(config, Path(folder), where) as (run, start, beat):
        for name in where:
            start(name)
        log, deadline = run.attempt(1).log("a"), time.monotonic() + 120
        while time.monotonic() < deadline:
            lines = log.read_text().splitlines() if log.exists() else []
            found = next((line[line.index("{") :] for line in lines if '"rows"' in line), None)
            if found is not None:
                rows = json.loads(found)["rows"]
                taken = "eth1" if beat("a").address.startswith("10.79.1.") else "eth0"
                return {row["bytes"]: row["algorithm_bytes_per_s"] / 1e6 for row in rows}, taken
            time.sleep(0.1)
        raise SystemExit(f"no measurement within 120 s\n{log.read_text()}")


def compared(default: int, other: int, tries: int) -> str:
    """A row of the table; both ways in turn."""
    found: dict[str, list[dict[int, float]]] = {"eth0": [], "": []}
    taken = set()
    with nodes(default, other) as where:
        for _ in range(tries):
            for interface, speeds in found.items():
                speed, used = measured(where, interface)
                speeds.append(speed)
                if not interface:
                    taken.add(used)
    cells = []
    for size in SIZES:
        fixed, chosen = (statistics.median(one[size] for one in found[key]) for key in ("eth0", ""))
        cells.append(f"{fixed:.1f} | {chosen:.1f} | {chosen / fixed:.2f}")
    row = f"| {default} Mb/s | {other} Mb/s | {', '.join(sorted(taken))} | {' | '.join(cells)} |"
    print(row, flush=True)
    return row


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    how = f"`.venv/bin/python -P benchmarks/network.py --tries {given.tries}` on {os.cpu_count()} cores"
    head = [
        f"{how}, medians, MB/s (algorithm bandwidth, two ranks, Gloo).",
        "",
        "| eth0 (default route) | eth1 | taken | 1 MB over eth0 | chosen | ratio | 16 MB over eth0 | chosen | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    text = "\n".join([*head, *(compared(*case, given.tries) for case in CASES)])
    if given.no_write:
        return
    put("network", text)


if __name__ == "__main__":
    main()
