"""The supervisor's own cost: a tick's time, the share of a core, memory, how they grow; its log scanner beside grep.

    python -P benchmarks/supervisor.py            # rewrites the table in docs/benchmarks.md
    python -P benchmarks/supervisor.py --ticks 5 --no-write

Real run directories in a temporary folder, the daemon's own rounds. Between two rounds every node's beat is written
anew (the agents' work, not counted), and each node's log grows by a line. Slurm is stood in for by an object that says
RUNNING. Each row is a process of its own, so that its memory is its own.
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.document import put
from contract import event_lines
from contract import events as ev
from contract.beat import Beat, WorkerBeat, encode
from contract.config import RunConfig, dump
from contract.control import Control, write_control
from contract.layout import Root, RunDir
from contract.states import AgentPhase, ControlPhase, JobState, Phase
from slurm.queue import JobSeen
from supervisor.adapters.leadership import take
from supervisor.adapters.queues import Queues
from supervisor.daemon import Daemon, Options
from supervisor.diagnose.catalogue import load
from supervisor.diagnose.read import blocks
from supervisor.diagnose.scan import gate_of, scan

RANKS = 8
# name → runs, nodes of each, events that the journal has already
ROWS = {
    "one run, 128 nodes × 8 ranks": (1, 128, 0),
    "one run, 512 nodes × 8 ranks": (1, 512, 0),
    "one run, 2,048 nodes × 8 ranks": (1, 2048, 0),
    "the same, 100,000 events in its journal": (1, 2048, 100_000),
    "50 runs, one node × 8 ranks each": (50, 1, 0),
    "200 runs, one node × 8 ranks each": (200, 1, 0),
}
LOG_MB = 32
NOTE = (
    "Run directories on a local disk, all runs healthy; medians. Processor time is what counts on a machine that others"
    " use too. Rounds come less often where all of them together would take more than a tenth of a core, at most four"
    " seconds apart. Memory is the whole process's largest."
)


class Running:
    """A queue for which everything runs."""

    def look(self, jobs):
        return {job.key: JobSeen(state=JobState.RUNNING, job_id=job.job_id) for job in jobs}

    def cancel(self, job, *, force):
        raise AssertionError(job, force)


class Field:
    """The runs of one row, and their agents."""

    def __init__(self, folder: Path, runs: int, nodes: int, events: int) -> None:
        self.root = Root(path=folder)
        self.names = tuple(f"n{number}" for number in range(nodes))
        self.sequence = 1
        self.runs = [self._make(f"r-{number}", events) for number in range(runs)]
        self.beats = [
            (run.attempt(1).beat(name), at) for run in self.runs for at, name in enumerate(self.names)
        ]
        self.move()

    def _make(self, name: str, events: int) -> RunDir:
        job = {"executor": "slurm", "nodes": len(self.names), "ranks_per_node": RANKS, "command": ["true"]}
        config = RunConfig.model_validate(
            {"run": {"name": "r", "steps": 10**6, "root": str(self.root.path)}, "job": job}
        )
        run = self.root.run(name)
        attempt = run.attempt(1)
        for place in (run.requests, run.checkpoints, run.metrics, attempt.beats, attempt.alive, attempt.logs):
            place.mkdir(parents=True)
        run.config.write_text(dump(config))
        go = {"members": self.names, "master": "n0", "port": 1}
        bodies = [
            ev.RunCreated(run=name, config_digest="", version="0", target_steps=10**6, target_tokens=0),
            ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"),
            ev.AttemptSubmitted(attempt=1, job_id="7"),
            ev.GenerationIntended(attempt=1, generation=2, members=self.names, reason="x"),
            ev.GenerationWent(attempt=1, generation=2, **go),
            ev.GenerationResumed(attempt=1, generation=2, step=0),
            *(ev.CheckpointSeen(step=step, attempt=1, generation=2) for step in range(events)),
            ev.StateChanged(state="running", reason="all train"),
        ]
        with run.journal.open("wb") as file:
            for seq, body in enumerate(bodies, start=1):
                file.write(event_lines.encode(ev.Event(seq=seq, time=time.time(), epoch=0, body=body)))
        write_control(run, Control(attempt=1, generation=2, phase=ControlPhase.GO, **go))
        attempt.resume(2).write_text('{"version": 1, "step": 0}')
        for node in self.names:
            (attempt.alive / node).touch()
        return run

    def move(self) -> None:
        """What the agents do in a second."""
        self.sequence += 1
        for place, number in self.beats:
            place.write_bytes(encode(self._beat(number)))
        line = f"2026-01-01T00:00:00.000Z g0002 r0 | step {self.sequence}: loss 2.0, lr 0.0001\n"
        for run in self.runs:
            for name in self.names:
                with run.attempt(1).log(name).open("a") as file:
                    file.write(line)

    def _beat(self, number: int) -> Beat:
        worker = WorkerBeat(rank=0, local_rank=0, pid=1, step=self.sequence, phase=Phase.FORWARD, idle_s=0.1)
        first = number * RANKS
        return Beat(
            node=self.names[number],
            attempt=1,
            generation=2,
            sequence=self.sequence,
            phase=AgentPhase.RUNNING,
            ready_for=2,
            workers=tuple(replace(worker, rank=first + local, local_rank=local) for local in range(RANKS)),
            usual={"forward": 0.5, "backward": 1.0},
        )


class OneRound:
    """Stands in for the stop signal: rounds are called one by one here."""

    asked = False


def one_round(daemon: Daemon) -> None:
    """To its end, also where it takes longer than the daemon would wait for it."""
    daemon._rounds(OneRound())
    while daemon._lanes.late:
        time.sleep(0.001)


def measure(runs: int, nodes: int, events: int, ticks: int) -> dict[str, float]:
    """One row, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        field = Field(Path(folder), runs, nodes, events)
        leadership = take(field.root)
        daemon = Daemon(field.root, leadership, Options(), lambda _: None)
        queues = Queues(time.monotonic, slurm=Running())
        daemon._world = replace(daemon._world, queues=queues)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        one_round(daemon)
        first = time.perf_counter() - began
        walls, cpus, waits = [], [], []
        for _ in range(ticks + 2):
            field.move()
            for supervision in daemon._runs.values():
                supervision.due_at = 0.0
            wall, cpu = time.perf_counter(), time.process_time()
            one_round(daemon)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            now = time.monotonic()
            waits.append(statistics.median(item.due_at for item in daemon._runs.values()) - now)
        assert all(item.active for item in daemon._runs.values())
        healthy = {item.history.state.value for item in daemon._runs.values()}
        daemon._end()
        leadership.release()
        assert healthy == {"running"}, healthy
        cpu = statistics.median(cpus[2:])
        return {
            "first": first,
            "tick": statistics.median(walls[2:]),
            "worst": max(walls[2:]),
            "cpu": cpu,
            "share": cpu / (max(1.0, statistics.median(waits[2:]))),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "before": before / 1024,
        }


# -- log scanning


def make_log(path: Path, megabytes: int) -> None:
    """Training output of eight ranks with what real logs hold: settings, warnings, bars, and a failure at the end."""
    dice = random.Random(7)
    usual = [
        "[rank{r}]: step {n}: loss {x:.4f} lr 1.0e-04 grad_norm {x:.2f} tokens/s 41231",
        "{n}%|####      | {n}/10000 [01:02<03:04, 2.3it/s, loss={x:.3f}]",
        "2026-01-01 00:00:00,123 [INFO] [logging.py:96:log_dist] [Rank {r}] step={n}, skipped=0, lr=[0.0001]",
        "node-{r}:123:456 [{r}] NCCL INFO Channel 0{r}/0 : 3[3] -> 4[4] via P2P/CUMEM",
    ]
    with path.open("w") as file:
        while file.tell() < megabytes << 20:
            file.writelines(
                usual[dice.choices((0, 1, 2, 3), (70, 10, 15, 5))[0]].format(
                    r=dice.randrange(8), n=dice.randrange(10**5), x=dice.random() * 4
                )
                + "\n"
                for _ in range(5000)
            )
        file.write("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")


def scanning(megabytes: int) -> dict[str, float]:
    """MB/s of the catalogue's scan and of grep with its keys, and with its patterns, on the same file."""
    with tempfile.TemporaryDirectory() as folder:
        log, keys, patterns = (Path(folder) / name for name in ("log", "keys", "patterns"))
        make_log(log, megabytes)
        entries = load().entries
        keys.write_text("\n".join(sorted({key for entry in entries for key in entry.keys})) + "\n")
        found = [item.pattern for entry in entries for item in entry.patterns]
        patterns.write_text("\n".join(dict.fromkeys(map(posix, found))) + "\n")
        size = log.stat().st_size / 1e6
        log.read_bytes()  # into the page cache for everybody
        began = time.perf_counter()
        with log.open("rb") as stream:
            result = scan(blocks(stream), "log", 0, load(), gate_of(load()))
        ours = size / (time.perf_counter() - began)
        assert any(event.entry.name == "cuda-out-of-memory" for event in result.events)
        return {
            "ours": ours,
            "keys": grep("-F", keys, log, size),
            "patterns": grep("-E", patterns, log, size),
        }


def grep(how: str, words: Path, log: Path, size: float) -> float:
    """MB/s, in the C locale, which is grep's fastest. 0: not within ten minutes."""
    command = ["grep", "-i", how, "-c", "-f", str(words), str(log)]
    began = time.perf_counter()
    try:
        done = subprocess.run(command, env={"LC_ALL": "C"}, capture_output=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return 0.0
    assert done.returncode in {0, 1}, done.stderr
    return size / (time.perf_counter() - began)


def posix(pattern: str) -> str:
    """The same for grep -E: no named groups, look-arounds left out, classes in words."""
    text = re.sub(r"\(\?(?:=|!|<=|<!)(?:[^()]|\([^()]*\))*\)", "", pattern)
    text = re.sub(r"\(\?(?:P<\w+>|:|i:)", "(", text).replace("\\d", "[0-9]").replace("\\x27", "'")
    text = (
        text.replace("\\x22", '"').replace("[\\w.-]", "[[:alnum:]_.-]").replace("[\\w .-]", "[[:alnum:]_ .-]")
    )
    text = re.sub(r"\[([^\]]*)\\w([^\]]*)\]", r"[\1[:alnum:]_\2]", text)
    return re.sub(r"\[([^\]]*)\\s([^\]]*)\]", r"[\1[:space:]\2]", text)


# -- the table


def rows(ticks: int, only: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Each in a process of its own."""
    for name in ROWS:
        if only in name:
            command = [sys.executable, "-P", __file__, "--ticks", str(ticks), "--row", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            yield name, json.loads(done.stdout)


def table(found: list[tuple[str, dict[str, float]]], speed: dict[str, float], ticks: int) -> str:
    lines = [
        f"`python -P benchmarks/supervisor.py --ticks {ticks}` on {os.cpu_count()} cores ({platform.machine()}). {NOTE}",
        "",
        "| runs | first tick | tick, wall | slowest | tick, processor | of a core | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['first']:.2f} s | {row['tick']:.3f} s | {row['worst']:.3f} s | {row['cpu']:.3f} s"
        f" | {row['share']:.0%} | {row['memory']:.0f} MB |"
        for name, row in found
    ]
    if speed:
        best = speed["patterns"]
        lines += [
            "",
            f"Log scanning of {LOG_MB} MB in the same run (`LC_ALL=C grep -i`; patterns in POSIX, without look-arounds):",
            "",
            "| reader | MB/s | against `grep -E -f` |",
            "|---|---|---|",
            f"| ciuic's catalogue (match, rank, traceback, progress) | {speed['ours']:.1f} | {speed['ours'] / best:.2f} |",
            f"| `grep -E -f` the same patterns (only which lines match) | {best:.2f} | 1.00 |",
            f"| `grep -F -f` the catalogue's keys | {speed['keys']:.0f} | {speed['keys'] / best:.2f} |",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ticks", type=int, default=10)
    parser.add_argument("--row", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(*ROWS[options.row], options.ticks)))
        return
    found = list(rows(options.ticks, options.only))
    speed = {} if options.only else scanning(LOG_MB)
    text = table(found, speed, options.ticks)
    print(text)
    if not options.no_write and not options.only:
        put("supervisor", text)


if __name__ == "__main__":
    main()
