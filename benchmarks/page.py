"""The live page's cost: what it adds to a round of the supervisor, what is sent, how old it is where it arrives.

    python -P benchmarks/page.py            # rewrites the table in docs/benchmarks.md
    python -P benchmarks/page.py --ticks 4 --no-write

The run directories are those of benchmarks/supervisor.py, and 20,000 steps of metrics of each run. Rounds without a page, with one that a
browser follows, and with one that 200 follow take turns in one process. Viewers are a process of their own; the first
paint is Chromium's, from the request to the words on the screen.
"""

import argparse
import gzip
import json
import os
import platform
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.document import put
from benchmarks.supervisor import Field, Running, one_round
from supervisor.adapters.leadership import take
from supervisor.adapters.queues import Queues
from supervisor.daemon import Daemon, Options
from supervisor.page.door import Place

ROWS = {
    "one run, one node × 8 ranks": (1, 1, "r-0"),
    "100 runs, one node × 8 ranks each": (100, 1, ""),
    "one run, 2,048 nodes × 8 ranks": (1, 2048, "r-0"),
}
CROWD = 200
STEPS = 20_000
PACE_S = 1.0  # between two rounds: the daemon's own
TURNS = 3  # of each kind: none, one, a crowd
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
NOTE = (
    "Medians; a round's time is wall time, beside the same rounds without a page in the same process. The page of one run"
    f" has {STEPS:,} steps of metrics. The age is from the supervisor's look to the arrival in a viewer. Viewers, browser and"
    " the agents' work share the cores with the supervisor."
)


def metrics(field: Field) -> None:
    for run in field.runs:
        with run.metrics_of(1, 2).open("w") as file:
            for step in range(1, STEPS + 1):
                file.write(
                    f'{{"step": {step}, "loss": {2 + 9 / step:.6f}, "grad_norm": {0.5 + step % 7 / 10:.4f}, "lr": 0.0003,'
                    f' "lr_embedding": 0.0003, "tokens_per_s": {50_000 + step % 999}.0, "step_s": 0.{step % 89 + 10},'
                    f' "global_batch": 16, "micro_steps": 2}}\n'
                )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def picture(port: int, run: str) -> tuple[str, int, int]:
    """(version, bytes sent, bytes unpacked) of the whole picture."""
    address = f"http://127.0.0.1:{port}/picture" + (f"?run={run}" if run else "")
    asked = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        packed = answer.read()
    data = gzip.decompress(packed)
    return json.loads(data)["version"], len(packed), len(data)


# -- viewers, a process of their own


def view(port: int, run: str, count: int, version: str) -> None:
    """Follow until standard input closes; then say what came."""
    chosen = selectors.DefaultSelector()
    asked = f"/events?since={version}" + (f"&run={run}" if run else "")
    for _ in range(count):
        link = socket.create_connection(("127.0.0.1", port), timeout=60)
        link.sendall(f"GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        link.setblocking(False)
        chosen.register(link, selectors.EVENT_READ, bytearray())
    chosen.register(sys.stdin, selectors.EVENT_READ, None)
    print("there", flush=True)
    sizes, ages, got = [], [], 0
    while True:
        for key, _ in chosen.select():
            if key.data is None:
                print(json.dumps({"sizes": sizes, "ages": ages, "bytes": got / count}), flush=True)
                return
            data = key.fileobj.recv(1 << 20)
            if not data:
                chosen.unregister(key.fileobj)
                continue
            got += len(data)
            key.data.extend(data)
            while (end := key.data.find(b"\n\n")) >= 0:
                event = bytes(key.data[:end])
                del key.data[: end + 2]
                if event.startswith(b"event: change"):
                    sizes.append(len(event))
                    ages.append(time.time() - json.loads(event.split(b"data: ", 1)[1])["of"])


class Viewers:
    def __init__(self, port: int, run: str, count: int) -> None:
        version, _, _ = picture(port, run)
        command = [sys.executable, "-P", __file__, "--view", str(port), run, str(count), version]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "there\n"

    def end(self) -> dict[str, Any]:
        self._process.stdin.close()
        found = json.loads(self._process.stdout.readline())
        self._process.wait(30)
        return found


# -- one row


def rounds(daemon: Daemon, field: Field, ticks: int) -> list[float]:
    """Wall times of the supervisor's rounds, one a second."""
    walls = []
    for number in range(ticks):
        due = time.perf_counter() + PACE_S
        field.move()
        for supervision in daemon._runs.values():
            supervision.due_at = 0.0
        began = time.perf_counter()
        one_round(daemon)
        if number:  # the first of a turn finds other things in the caches
            walls.append(time.perf_counter() - began)
        if daemon._page is not None:
            daemon._page.ticked()
        time.sleep(max(0.0, due - time.perf_counter()))
    return walls


def measure(runs: int, nodes: int, run: str, ticks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        field = Field(Path(folder), runs, nodes, 0)
        metrics(field)
        leadership = take(field.root)
        place = Place(host="127.0.0.1", port=free_port())
        daemon = Daemon(field.root, leadership, Options(page=place), lambda _: None)
        daemon._world = replace(daemon._world, queues=Queues(time.monotonic, slurm=Running()))
        one_round(daemon)
        daemon._page.ticked()
        walls: dict[int, list[float]] = {0: [], 1: [], CROWD: []}
        told: dict[int, list[dict[str, Any]]] = {1: [], CROWD: []}
        page = daemon._page
        rounds(daemon, field, 2)
        for _ in range(TURNS):
            daemon._page = None  # nobody looks: the painter sleeps
            walls[0] += rounds(daemon, field, ticks)
            daemon._page = page
            page.ticked()
            for count in (1, CROWD):
                viewers = Viewers(place.port, run, count)
                walls[count] += rounds(daemon, field, ticks)
                told[count].append(viewers.end())
        _, sent, whole = picture(place.port, run)
        found = {
            "none": statistics.median(walls[0]),
            "one": statistics.median(walls[1]),
            "crowd": statistics.median(walls[CROWD]),
            "sent": sent,
            "whole": whole,
            "change": statistics.median(size for item in told[1] for size in item["sizes"]),
            "age": statistics.median(age for item in told[1] for age in item["ages"]),
            "crowd_age": statistics.median(age for item in told[CROWD] for age in item["ages"]),
            "paint": first_paint(place.port, run) if CHROMIUM else 0.0,
        }
        daemon._end()
        leadership.release()
        return found


def first_paint(port: int, run: str) -> float:
    """Seconds from the request to the words on the screen, a browser without a cache."""
    from playwright.sync_api import sync_playwright

    there = ".verdict .reason" if run else ".fleet tbody tr"
    found = []
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(5):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            view = context.new_page()
            view.goto(f"http://127.0.0.1:{port}/#/{run}", wait_until="commit")
            view.locator(there).first.wait_for()
            view.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            found.append(view.evaluate("performance.now()") / 1000)
            context.close()
        browser.close()
    return statistics.median(found)


# -- the table


def rows(ticks: int, only: str) -> Iterator[tuple[str, dict[str, float]]]:
    for name in ROWS:
        if only in name:
            command = [sys.executable, "-P", __file__, "--ticks", str(ticks), "--row", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            yield name, json.loads(done.stdout.splitlines()[-1])


def table(found: list[tuple[str, dict[str, float]]], ticks: int) -> str:
    lines = [
        f"`python -P benchmarks/page.py --ticks {ticks}` on {os.cpu_count()} cores ({platform.machine()}). {NOTE}",
        "",
        f"| runs | round with 1 viewer | with {CROWD} | first paint | whole picture | a change | its age | with {CROWD} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['one'] / row['none']:.2f} | {row['crowd'] / row['none']:.2f} | {row['paint']:.2f} s"
        f" | {row['sent'] / 1000:.1f} kB ({row['whole'] / 1000:.0f} kB unpacked) | {row['change'] / 1000:.1f} kB"
        f" | {row['age']:.2f} s | {row['crowd_age']:.2f} s |"
        for name, row in found
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ticks", type=int, default=8)
    parser.add_argument("--row", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--view", nargs=4)
    options = parser.parse_args()
    if options.view:
        port, run, count, version = options.view
        view(int(port), run, int(count), version)
        return
    if options.row:
        print(json.dumps(measure(*ROWS[options.row], options.ticks)))
        return
    text = table(list(rows(options.ticks, options.only)), options.ticks)
    print(text)
    if not options.no_write and not options.only:
        put("page", text)


if __name__ == "__main__":
    main()
