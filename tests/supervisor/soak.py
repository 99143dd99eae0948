"""A day of the real daemon in minutes: simulated clock, a queue and agents of our own, everything else as it is.

    python -P tests/supervisor/soak.py --hours 24 --runs 50      # prints one JSON object

Real: the daemon's rounds, the observer, judge, decide, journals, control files, leadership, the outbox and its HTTP.
Stood in for: Slurm (one object), the agents (the tiny world of the decisions, written to disk as real beats, exit
records, checkpoints and metrics) and the clock. Runs end and new ones come, as on a cluster. Faults come by chance.
"""

import argparse
import gc
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import ascii_lowercase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the tests, which nobody installs

from contract import events as ev
from contract import files
from contract.beat import encode
from contract.config import RunConfig, dump
from contract.control import Claim, Go, claim_attempt, create_go, read_control
from contract.exits import write_exits
from contract.history import History
from contract.journal import Journal, JournalReader
from contract.layout import Root, RunDir
from contract.manifest import Manifest, Shard, directories, publish, remove
from contract.requests import Request, RequestKind, new_id, write_request
from contract.states import JobState, RunState
from slurm.find import Finding, Found
from slurm.job import write_job
from slurm.queue import JobSeen
from slurm.submit import SubmitFailed, Submitted
from supervisor.adapters import act
from supervisor.adapters.leadership import Leadership, take
from supervisor.adapters.queues import Queues
from supervisor.book import Book
from supervisor.daemon import Clocks, Daemon, Options
from tests.supervisor.core.world import Job, Node, Worker
from tests.supervisor.core.world import World as TinyWorld

STRIDE_S = 10.0  # one round, one step, one beat
BEGIN = 1_700_000_000.0
QUIET_S = 1800.0  # without faults, at the end (or half the time): whoever is still not training then is lost
KEPT_S = 1200.0  # a run that is over stays so long, then its directory is removed
FAULT_S = 2400.0  # mean time between two faults of one run
FAULTS = {
    "rank killed": 4,
    "rank raises": 3,
    "rank hangs": 3,
    "node lost": 3,
    "job preempted": 1,
    "job at its limit": 2,
    "job lost a node": 1,
    "agent held up": 2,
    "beat torn": 2,
    "paused by a person": 1,
    "cancelled by a person": 0.2,
    "answer to a submission lost": 1,
    "submission refused": 1,
}
# name → mean seconds between two, over all runs
COMMON = {
    "queue silent": 7200.0,
    "file system stalls": 10_800.0,
    "supervisor killed": 3600.0,
    "supervisor sleeps": 14_400.0,
    "supervisor restarted": 21_600.0,
    "supervisor reloads": 10_800.0,
}
CONFIG = {
    "job": {"executor": "slurm", "nodes": 2, "spare_nodes": 1, "ranks_per_node": 1},
    "monitor": {
        "beat_s": STRIDE_S,
        "start_s": 300.0,
        "first_step_s": 300.0,
        "step_s": 300.0,
        "hang_floor_s": 60.0,
        "node_silent_s": 90.0,
        "unknown_alert_s": 300.0,
    },
    "supervisor": {"tick_s": STRIDE_S, "backoff_s": STRIDE_S, "backoff_max_s": 120.0},
    "alerts": {"webhook": [{"per_minute": 60}]},
}


class KilledError(BaseException):
    """The supervisor died: no handler of its own may catch it."""


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return BEGIN + self.now


@dataclass
class Site(TinyWorld):
    """One run's truth, kept on disk as its agents keep it. Bounded: what is long over is forgotten."""

    run_dir: RunDir | None = None
    clock: Clock = field(default_factory=Clock)
    number: int = 0
    two_at_once: int = 0
    torn: bool = False
    written: set = field(default_factory=set)

    @property
    def place(self) -> RunDir:
        assert self.run_dir is not None
        return self.run_dir

    def live(self) -> None:
        """One stride, and what it leaves on disk."""
        self.control = read_control(self.place)
        if self.control is None:
            return
        self.history = History(max_step=self.control.max_step)
        self.now = self.clock.now - 1.0
        alive = self.live_jobs
        self.move()
        self.two_at_once += len(self.live_jobs) > 1
        for job in alive:  # what ends now has its last words too
            if job.nodes:
                self._publish(job)
        self._forget()

    def _publish(self, job: Job) -> None:
        attempt = self.place.attempt(job.attempt)
        if ("claim", job.attempt) not in self.written:
            self.written.add(("claim", job.attempt))
            for folder in (attempt.beats, attempt.alive, attempt.logs):
                folder.mkdir(parents=True, exist_ok=True)
            claim_attempt(self.place, job.attempt, Claim(job_id=self.id_of(job.attempt), restart=0))
            for name in job.nodes:
                (attempt.alive / name).touch()
        if job.attempt in self.go:
            create = ("go", job.attempt)
            if create not in self.written:
                self.written.add(create)
                members = self.go[job.attempt]
                create_go(
                    self.place, Go(attempt=job.attempt, generation=1, members=members, master="m", port=1)
                )
        for node in job.nodes.values():
            said = node.alive and self.now >= node.late_until
            if node.sequence and (said or (node.done_code is not None and not job.state.alive)):
                self._beat(job, node)
        for (number, generation), step in self.resumes.items():
            if number == job.attempt and ("resume", number, generation) not in self.written:
                self.written.add(("resume", number, generation))
                files.create_json(attempt.resume(generation), {"version": 1, "step": step})
        for (number, generation), ends in self.exits.items():
            if number != job.attempt or ("exits", number, generation, len(ends)) in self.written:
                continue
            self.written.add(("exits", number, generation, len(ends)))
            for name in {item.node for item in ends}:
                mine = tuple(item for item in ends if item.node == name)
                write_exits(self.place, number, generation, name, mine)

    def _beat(self, job: Job, node: Node) -> None:
        beat = self._seen(job, node).beat
        assert beat is not None
        data = encode(replace(beat, usual={"backward": STRIDE_S}, port=4000))
        if self.torn:
            self.torn, data = False, data[:40] + b"?" + data[41:]
        attempt = self.place.attempt(job.attempt)
        attempt.beat(node.name).write_bytes(data)
        with attempt.log(node.name).open("a") as log:
            log.write(f"2026-01-01T00:00:00.000Z g{node.generation:04d} r0 | beat {node.sequence}\n")

    def _worker_beat(self, worker: Worker):
        found = super()._worker_beat(worker)
        return replace(found, idle_s=worker.idle * STRIDE_S, spent={})

    def _learn(self, job: Job, generation: int, step: int) -> None:
        value = {"step": step, "loss": 2.0 + 0.01 * (step % 5), "grad_norm": 1.0, "step_s": STRIDE_S}
        with self.place.metrics_of(job.attempt, generation).open("a") as file:
            file.write(json.dumps(value | {"tokens_per_s": 100.0}) + "\n")

    def _write_checkpoint(self, job: Job, step: int, generation: int) -> None:
        super()._write_checkpoint(job, step, generation)
        folder = self.place.checkpoint(step, job.attempt, generation)
        if folder.exists():
            return
        folder.mkdir()
        (folder / "shard").write_bytes(b"x")
        shard = Shard(path="shard", size=1, xxh3="0" * 16)
        at = {"step": step, "attempt": job.attempt, "generation": generation}
        publish(
            folder, Manifest(run=self.place.run_id, world_size=2, tokens=0, position=0, shards=(shard,), **at)
        )
        for old in sorted(directories(self.place))[:-3]:
            remove(old)

    def _forget(self) -> None:
        for number in sorted(self.jobs)[:-3]:
            del self.jobs[number]
        self.saved = {step: self.saved[step] for step in sorted(self.saved)[-3:]}
        self.exits = {key: self.exits[key] for key in sorted(self.exits)[-4:]}
        self.resumes = {key: self.resumes[key] for key in sorted(self.resumes)[-8:]}

    def id_of(self, attempt: int) -> str:
        return str(self.number * 1000 + attempt)


class Cluster:
    """Slurm, as far as the supervisor sees it: a queue client, and what takes submissions."""

    def __init__(self, clock: Clock, dice: random.Random) -> None:
        self.sites: dict[str, Site] = {}
        self.clock, self.dice = clock, dice
        self.silent_until = 0.0
        self.lose_answers = self.refuse = 0
        self.submitted_twice = 0

    @property
    def silent(self) -> bool:
        return self.clock.now < self.silent_until

    def look(self, jobs):
        return {job.key: self._seen(job) for job in jobs}

    def _seen(self, job) -> JobSeen:
        site = self.sites.get(job.run.run_id)
        if self.silent or site is None:
            return JobSeen(state=JobState.UNKNOWN, reason="squeue gave no answer")
        found = site.jobs.get(job.attempt)
        if found is None:
            return JobSeen(state=JobState.GONE, reason="no job with the attempt's tag")
        return JobSeen(state=found.state, job_id=site.id_of(job.attempt))

    def cancel(self, job, *, force) -> bool:
        if self.silent:
            return False
        found = self.sites[job.run.run_id].jobs.get(job.attempt)
        if found and found.state.alive and found.ends_in is None:
            found.ends_in, found.ends_as = 2, JobState.ENDED_CANCELLED
        return True

    def submit(self, run: RunDir, config: RunConfig, attempt: int, exclude=()) -> Submitted | SubmitFailed:
        del config, exclude
        site = self.sites[run.run_id]
        run.attempt(attempt).submission.mkdir(parents=True, exist_ok=True)
        write_job(run, attempt, tag="t", executor="slurm", job_id="")
        if self.silent or self.refuse:
            self.refuse = max(0, self.refuse - 1)
            return SubmitFailed(reason="sbatch: error: the controller is busy", doubtful=self.silent)
        self.submitted_twice += attempt in site.jobs or bool(site.live_jobs)
        site.jobs[attempt] = Job(attempt=attempt)
        if self.lose_answers:
            self.lose_answers -= 1
            return SubmitFailed(reason="socket timed out", doubtful=True)
        write_job(run, attempt, tag="t", executor="slurm", job_id=site.id_of(attempt))
        return Submitted(job_id=site.id_of(attempt))

    def find(self, run: RunDir, attempt: int, ask=None) -> Found:
        del ask
        if self.silent:
            return Found(finding=Finding.UNKNOWN, reason="Slurm gave no answer")
        site = self.sites[run.run_id]
        if attempt in site.jobs:
            return Found(finding=Finding.FOUND, job_id=site.id_of(attempt))
        return Found(finding=Finding.ABSENT, reason="no job with the comment t")


class Receiver(ThreadingHTTPServer):
    """Takes alerts, and now and then has a bad moment."""

    daemon_threads = True

    def __init__(self) -> None:
        received = self
        self.taken = self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                received.asked += 1
                good = received.asked % 20
                received.taken += bool(good)
                self.send_response(200 if good else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class NeverAsked:
    """Stands in for the stop signal: rounds are called one by one here."""

    asked = False


class Soak:
    def __init__(self, folder: Path, runs: int, seed: int) -> None:
        self.clock = Clock()
        self.dice = random.Random(seed)
        self.root = Root(path=folder)
        self.cluster = Cluster(self.clock, self.dice)
        self.sites = self.cluster.sites
        self.made = 0
        self.faults: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.trouble: list[str] = []
        self.events = self.ticks = self.longest_journal = 0
        self.said: Counter[str] = Counter()
        self.over_at: dict[str, float] = {}
        self.resume_at: dict[str, float] = {}
        self.stalled_until = 0.0
        self.kill_in: int | None = None
        self.next_common = {name: self._later(mean) for name, mean in COMMON.items()}
        self.next_fault: dict[str, float] = {}
        for _ in range(runs):
            self.new_run()
        self._patch()
        self.daemon: Daemon
        self.leadership: Leadership
        self.start()

    def _later(self, mean_s: float) -> float:
        return self.clock.now + self.dice.expovariate(1.0 / mean_s)

    def _patch(self) -> None:
        act.submit_attempt = self.cluster.submit
        act.find_attempt = self.cluster.find
        act.list_nodes = lambda **_: None
        act.keep_facts = lambda *_: None
        append = Book.append

        def dies(book: Book, body: ev.Body) -> None:
            append(book, body)
            self._maybe_die()

        Book.append = dies  # type: ignore[method-assign]
        write = act.write_control

        def dies_too(*arguments) -> None:
            write(*arguments)
            self._maybe_die()

        act.write_control = dies_too

    def _maybe_die(self) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                raise KilledError

    # --- the supervisor

    def start(self) -> None:
        self.leadership = take(self.root)
        clocks = Clocks(wall=self.clock.wall, monotonic=self.clock.monotonic)
        self.daemon = Daemon(self.root, self.leadership, Options(), self._say, clocks=clocks)
        self.queues = Queues(self.clock.monotonic, slurm=self.cluster)
        self.daemon._world = replace(self.daemon._world, queues=self.queues)

    def _say(self, text: str) -> None:
        if "this round broke" in text:
            self.trouble.append(text)
        self.said[text.rsplit(": ", maxsplit=1)[-1][:40]] += 1 if len(self.said) < 500 else 0

    def stop(self) -> None:
        self.daemon._end()
        self.leadership.release()

    def die(self) -> None:
        """What the kernel does with a killed process: its locks and files are free, nothing is said."""
        for supervision in self.daemon._runs.values():
            supervision.release()
        self.daemon._lanes.close()
        self.daemon._world.watcher.close()
        os.close(self.leadership._beat)
        self.leadership._lock.release()

    def round(self) -> None:
        try:
            self.daemon._rounds(NeverAsked())
            while self.daemon._lanes.late:
                time.sleep(0.001)
        except KilledError:
            self.die()
            self.start()
        self.ticks += len(self.daemon._runs)
        asking = self.queues._asking
        if asking is not None:
            asking.join()

    # --- the cluster's life

    def new_run(self) -> None:
        self.made += 1
        name = f"soak-{self.made}"
        steps = self.dice.randrange(500, 3000)
        config = RunConfig.model_validate(
            {"run": {"name": "soak", "steps": steps, "root": str(self.root.path)}} | CONFIG
        )
        run = self.root.run(name)
        aside = self.root.run(f".{name}")
        for place in (aside.requests, aside.attempts, aside.checkpoints, aside.metrics):
            place.mkdir(parents=True)
        aside.config.write_text(dump(config))
        aside.lock.touch()
        journal = Journal(aside.journal, clock=self.clock.wall, epoch=0)
        journal.append(
            ev.RunCreated(run=name, config_digest="", version="0", target_steps=steps, target_tokens=0)
        )
        journal.close()
        aside.path.rename(run.path)
        self.sites[name] = Site(config=config, run_dir=run, clock=self.clock, number=self.made)
        self.next_fault[name] = self._later(FAULT_S)

    def hurt(self, name: str, site: Site) -> None:  # noqa: PLR0912 — one branch a fault
        kind = self.dice.choices(list(FAULTS), list(FAULTS.values()))[0]
        number = self.dice.randrange(8)
        match kind:
            case "rank killed":
                site.kill_rank(number)
            case "rank raises":
                # By another name each time: the same failure twice at one step would rightly end the run (rule 10).
                site.raise_in_rank(
                    number, f"no such layer: {''.join(self.dice.choices(ascii_lowercase, k=8))}"
                )
            case "rank hangs":
                site.hang_rank(number)
            case "node lost":
                site.lose_node(number)
            case "job preempted":
                site.end_job(JobState.ENDED_PREEMPTED)
            case "job at its limit":
                site.usr1 = True
            case "job lost a node":
                site.end_job(JobState.ENDED_NODE)
            case "agent held up":
                site.hold_up(number, 4 * STRIDE_S)
            case "beat torn":
                site.torn = True
            case "answer to a submission lost":
                self.cluster.lose_answers += 1
            case "submission refused":
                self.cluster.refuse += 1
            case "paused by a person":
                self._ask(site, RequestKind.PAUSE)
                self.resume_at[name] = self._later(900.0) + 300.0
            case "cancelled by a person":
                self._ask(site, RequestKind.CANCEL)
        self.faults[kind] += 1

    def _ask(self, site: Site, kind: RequestKind) -> None:
        write_request(site.place, Request(id=new_id(self.clock.wall()), kind=kind, by="li"))

    def common_fault(self, kind: str) -> None:
        match kind:
            case "queue silent":
                self.cluster.silent_until = self.clock.now + self.dice.uniform(60, 480)
            case "file system stalls":
                self.stalled_until = self.clock.now + self.dice.uniform(20, 120)
            case "supervisor killed":
                self.kill_in = self.dice.randrange(12)
            case "supervisor sleeps":
                for _ in range(30):
                    self.agents(STRIDE_S)
            case "supervisor restarted":
                self.stop()
                self.start()
            case "supervisor reloads":
                self.daemon._reload()
        self.faults[kind] += 1

    def agents(self, seconds: float) -> None:
        self.clock.now += seconds
        if self.clock.now >= self.stalled_until:
            for site in self.sites.values():
                site.live()

    def step(self, *, calm: bool) -> None:
        self.agents(STRIDE_S)
        for name, site in list(self.sites.items()):
            state = self.state_of(name)
            if state is RunState.PAUSED and self.clock.now >= self.resume_at.get(name, 0.0):
                self._ask(site, RequestKind.RESUME)
                self.resume_at[name] = self.clock.now + 600.0
            if not calm and self.clock.now >= self.next_fault[name] and not state.final:
                self.next_fault[name] = self._later(FAULT_S)
                self.hurt(name, site)
            if state.final and state is not RunState.PAUSED:
                since = self.over_at.setdefault(name, self.clock.now)
                if self.clock.now - since >= KEPT_S:
                    self.close(name, state)
                    self.new_run()
        for kind, at in self.next_common.items():
            if not calm and self.clock.now >= at:
                self.next_common[kind] = self._later(COMMON[kind])
                self.common_fault(kind)
        self.round()

    def state_of(self, name: str) -> RunState:
        supervision = self.daemon._runs.get(name)
        return supervision.history.state if supervision else RunState.PENDING

    def close(self, name: str, state: RunState) -> None:
        """A run that is over is counted, and its directory removed."""
        site = self.sites.pop(name)
        self.count(site, state)
        shutil.rmtree(site.place.path)
        for known in (self.over_at, self.next_fault, self.resume_at):
            known.pop(name, None)

    def count(self, site: Site, state: RunState) -> None:
        self.ends[state.value] += 1
        found = JournalReader(site.place.journal).new()
        self.events += len(found)
        self.longest_journal = max(self.longest_journal, len(found))
        for event in found:
            if isinstance(event.body, ev.Judged):
                self.verdicts[f"{event.body.verdict} ({event.body.cause})"] += 1
        if site.two_at_once:
            self.trouble.append(f"{site.place.run_id}: two jobs at once")
        if state is RunState.FAILED:
            reason = [event.body.reason for event in found if isinstance(event.body, ev.StateChanged)][-1]
            self.trouble.append(f"{site.place.run_id} was given up: {reason}")

    def lost(self, quiet_s: float) -> list[str]:
        """Runs that should train after a quiet time, and do not."""
        return [
            f"{name}: {state} {self.daemon._runs[name].history.reason}"
            for name in self.sites
            if (state := self.state_of(name))
            not in {RunState.RUNNING, RunState.COMPLETED, RunState.CANCELLED}
            and self.clock.now - self.made_at(name) > quiet_s / 2
        ]

    def made_at(self, name: str) -> float:
        return JournalReader(self.sites[name].place.journal).new()[0].time - BEGIN


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(folder: Path, hours: float, runs: int, seed: int, tell: Callable[[str], None]) -> dict:
    """What the simulated time showed. `trouble` and `lost` must be empty."""
    receiver = Receiver()
    os.environ["CIUIC_WEBHOOK_URL"] = f"http://127.0.0.1:{receiver.server_port}/"
    began, cpu = time.monotonic(), time.process_time()
    field = Soak(folder, runs, seed)
    end = field.clock.now + hours * 3600.0
    quiet_s = min(QUIET_S, hours * 1800.0)
    marks, next_mark = {}, field.clock.now + min(3600.0, hours * 1800.0)
    while field.clock.now < end:
        field.step(calm=end - field.clock.now < quiet_s)
        if field.clock.now >= next_mark:
            gc.collect()
            hour = round((field.clock.now - 1000.0) / 3600.0, 1)
            found = {
                "rss_mb": round(resident_mb(), 1),
                "files": len([*Path("/proc/self/fd").iterdir()]),
                "threads": threading.active_count(),
            }
            marks[hour] = found
            tell(f"hour {hour:g}: {found}, {time.monotonic() - began:.0f} s, {len(field.trouble)} troubles")
            next_mark += min(3600.0, hours * 1800.0)
    lost = field.lost(quiet_s)
    field.stop()
    for name, site in field.sites.items():
        field.count(site, field.state_of(name))
    wall = time.monotonic() - began
    return {
        "hours": hours,
        "runs_made": field.made,
        "ends": dict(field.ends),
        "faults": dict(field.faults),
        "verdicts": dict(field.verdicts.most_common()),
        "marks": marks,
        "journal_events": field.events,
        "longest_journal": field.longest_journal,
        "alerts_taken": receiver.taken,
        "ticks": field.ticks,
        "ticks_per_s": round(field.ticks / wall),
        "ms_of_processor_a_tick": round((time.process_time() - cpu) / field.ticks * 1000, 2),
        "seconds": round(wall),
        "submitted_twice": field.cluster.submitted_twice,
        "trouble": field.trouble,
        "lost": lost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="on a tmpfs, or fsync costs more than everything else")
    line = parser.parse_args()
    base = line.folder or (Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="ciuic-soak-", dir=base) as folder:
        found = soak(
            Path(folder),
            line.hours,
            line.runs,
            line.seed,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
