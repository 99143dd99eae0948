"""What each fault costs on a real Slurm: time to the verdict, to the next step, and steps done twice.

    python -P benchmarks/slurm_faults.py              # 3 tries a fault; rewrites the table in docs/benchmarks.md
    python -P benchmarks/slurm_faults.py --tries 1 --no-write

One run of the stand-in program (its steps take 0.1 s, a checkpoint each 10) on the four-node cluster that the tests
use, with the limits that a user gets by default. The faults are those of tests/cluster/faults.py.
"""

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # the faults are the tests', which nobody installs

import pytest

from benchmarks.document import put
from contract import events as ev
from contract.layout import RunDir
from supervisor.demo.robot import Robot
from tests.cluster import faults
from tests.cluster.conftest import KEY, Field, events, newest
from tests.cluster.slurm_cluster import PACKAGES, Cluster, missing_programs

HERE = Path(__file__).resolve().parents[1]
# What the tests shorten, at the product's own values.
DEFAULTS = {
    "monitor": {"beat_s": 1.0, "hang_floor_s": 8.0, "node_silent_s": 12.0},
    "supervisor": {"tick_s": 1.0, "queue_s": 15.0, "backoff_s": 1.0},
}
CASES: tuple[tuple[str, int, faults.Fault], ...] = (  # name, spare nodes, fault
    ("SIGKILL of a rank", 1, faults.rank_killed),
    ("SIGSTOP of a rank", 1, faults.rank_stopped),
    ("SIGKILL of a node agent, with a spare node", 1, faults.agent_killed),
    ("node lost, with a spare node", 1, faults.node_lost),
    ("node lost, without", 0, faults.node_lost),
    ("time limit", 0, faults.time_limit),
    ("a step is cancelled", 0, faults.step_cancelled),
    ("prolog fails on the next job's node", 0, faults.prolog_failed),
)


@dataclass
class Case:
    """One row."""

    name: str
    found: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    odd: int = 0  # tries that did not go as tests/cluster/faults.py expects


def queue_wait(run: RunDir, back: ev.Recovered) -> float:
    """Seconds from the submission to the start of the attempt that recovered; 0 in place."""
    if back.attempt == back.failed_attempt:
        return 0.0
    submitted = [
        event.time
        for event in events(run)
        if isinstance(event.body, ev.AttemptSubmitted) and event.body.attempt == back.attempt
    ]
    went = [
        event.time
        for event in events(run)
        if isinstance(event.body, ev.GenerationWent) and event.body.attempt == back.attempt
    ]
    return max(0.0, went[0] - submitted[0]) if went and submitted else 0.0


def measure(cluster: Cluster, name: str, spares: int, fault: faults.Fault, tries: int) -> Case:
    """Each try is a run of its own: a used spare or an excluded node must not change the next."""
    case = Case(name=name)
    for _ in range(tries):
        with Robot(key=KEY) as robot, tempfile.TemporaryDirectory(prefix="ciuic-bench-") as folder:
            place = Field(cluster, Path(folder), robot)
            try:
                config = place.config(
                    "--step-time", "0.1", run={"steps": 100_000}, job={"spare_nodes": spares}, **DEFAULTS
                )
                run = place.submit(config)
                place.supervise()
                place.until_event(run, ev.CheckpointSeen, 60)
                place.until_event(run, ev.CheckpointSeen, 60, newest(run))
                try:
                    verdict, back = fault(place, run)
                except (AssertionError, pytest.fail.Exception) as error:  # one try must not cost all others
                    print(f"  {name}: not as expected: {error or type(error).__name__}", flush=True)
                    case.odd += 1
                    continue
                waited = queue_wait(run, back)
                case.found.append(verdict.detected_s)
                case.queued.append(waited)
                case.back.append(back.detect_s + back.restart_s - waited)
                case.repeated.append(back.repeated_steps)
                print(
                    f"  {name}: {verdict.detected_s:.1f} s, {case.back[-1]:.1f} s + {waited:.1f} s in the queue, "
                    f"{back.repeated_steps} steps repeated",
                    flush=True,
                )
            finally:
                place.close()
    return case


def table(cases: list[Case], tries: int) -> str:
    made_by = (
        f"`python -P benchmarks/slurm_faults.py --tries {tries}`: Slurm 22.05 with four node daemons on "
        f"{os.cpu_count()} cores, the stand-in program on two nodes with steps of 0.1 s, default limits; medians over the tries, one value where there was one. "
        "The wait in the queue is the scheduler's and stands apart."
    )
    lines = [
        made_by,
        "",
        "| fault | to the verdict | to the next step | in the queue | steps repeated |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        name = f"{case.name} ({case.odd} of {tries} tries not as expected)" if case.odd else case.name
        if not case.found:
            lines.append(f"| {name} | - | - | - | - |")
            continue
        found, back, queued = (statistics.median(values) for values in (case.found, case.back, case.queued))
        lines.append(
            f"| {name} | {found:.1f} s | {back:.1f} s | {queued:.1f} s | {statistics.median(case.repeated):.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--only", default="", help="only faults whose name contains this")
    parser.add_argument("--no-write", action="store_true", help="print the table, leave the document alone")
    options = parser.parse_args()
    missing = missing_programs()
    if missing:
        print(f"missing: {', '.join(missing)}; on Debian: apt-get install {PACKAGES}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ciuic-slurm-") as directory:
        cluster = Cluster(directory=Path(directory))
        os.environ["SLURM_CONF"] = str(cluster.conf)
        Path(directory).chmod(0o755)
        try:
            cluster.up()
            chosen = [case for case in CASES if options.only in case[0]]
            cases = [measure(cluster, name, spares, fault, options.tries) for name, spares, fault in chosen]
        finally:
            cluster.down()
    text = table(cases, options.tries)
    print(text)
    if not options.no_write:
        put("slurm", text, script="slurm_faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
