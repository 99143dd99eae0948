"""Time from a fault to the next completed optimiser step, ciuic beside torchrun, with the same trainer and model.

    python -P benchmarks/recovery.py              # 10 tries a case; rewrites the table in docs/benchmarks.md
    python -P benchmarks/recovery.py --tries 2 --no-write
    python -P benchmarks/recovery.py --nvrx VENV  # beside ft_launcher too: VENV has `pip install nvidia-resiliency-ext`

The fault is a signal to rank 1 from outside. The clock runs from the signal until the metrics file of a later
generation holds its first row; both launchers are watched through the same file, so neither is favoured.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.document import put
from contract.beat import read_beat
from contract.config import dump, load
from contract.events import Judged
from contract.evidence import read_evidence
from contract.journal import JournalReader
from contract.layout import Root, RunDir, parse_metrics_name
from contract.manifest import directories, examine

HERE = Path(__file__).resolve().parent.parent
RECIPE = HERE / "configs" / "tiny-local.toml"
GIVE_UP_S = 60.0
TIMEOUTS = (
    "Without a supervisor a hang ends when a collective times out: by default after 1,800 s in torch with Gloo, "
    "600 s with NCCL and in DeepSpeed."
)
SETTINGS = ("run.steps=100000", "checkpoint.interval_steps=5", "data.evaluate_interval_steps=0")


@dataclass
class Case:
    """One row of the table: seconds of each try that recovered, and how many were made.

    `looked`: seconds that evidence took before the workers were ended; part of the others.
    """

    name: str
    seconds: list[float] = field(default_factory=list)
    tries: int = 0
    looked: list[float] = field(default_factory=list)
    detected: list[float] = field(default_factory=list)  # fault to verdict, where a journal tells


def wait(condition: Callable[[], object], seconds: float) -> bool:
    """Poll every 5 ms; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def generations(run: RunDir) -> dict[tuple[int, int], Path]:
    """(attempt, generation) → metrics file, for those that have completed a step."""
    return {
        key: path
        for path in run.metrics.glob("*.jsonl")
        if (key := parse_metrics_name(path.name)) and b"\n" in path.read_bytes()[:4096]
    }


def newest_step(path: Path) -> int:
    lines = path.read_bytes().splitlines()
    return int(json.loads(lines[-1])["step"]) if lines else 0


def settled(run: RunDir, generation: tuple[int, int]) -> bool:
    """The generation has saved a checkpoint of its own and gone 2 steps past it: fair to hit it now."""
    path = generations(run).get(generation)
    saved = [
        found.step
        for entry in directories(run)
        if (found := examine(entry, deep=False)).valid and (found.attempt, found.generation) == generation
    ]
    return path is not None and bool(saved) and newest_step(path) >= max(saved) + 2


def hit(
    case: Case,
    run: RunDir,
    victim: Callable[[], int],
    number: signal.Signals,
    launcher: "subprocess.Popen[bytes]",
) -> bool:
    """One try. Whether the run went on; not when its launcher has given up."""
    ready = wait(lambda: bool(generations(run)) and settled(run, max(generations(run))), GIVE_UP_S)
    if not ready:
        return False
    before = max(generations(run))
    case.tries += 1
    pid = victim()
    started = time.monotonic()
    os.kill(pid, number)
    wait(lambda: max(generations(run)) > before or launcher.poll() is not None, GIVE_UP_S)
    recovered = max(generations(run)) > before
    if recovered:
        case.seconds.append(time.monotonic() - started)
        print(f"  {case.name}: {case.seconds[-1]:.2f} s", flush=True)
    else:
        print(
            f"  {case.name}: not recovered ({'launcher gave up' if launcher.poll() else f'{GIVE_UP_S:g} s'})",
            flush=True,
        )
    return recovered


# ciuic


def ciuic_cases(
    tries: int, scratch: Path, cases: tuple[tuple[str, signal.Signals, tuple[str, ...]], ...]
) -> list[Case]:
    """Each case is one run that is hit again and again, under one supervisor."""
    found = []
    for index, (name, number, settings) in enumerate(cases):
        case = Case(name=name)
        root = scratch / f"ciuic-{index}"
        command = [sys.executable, "-P", "-m", "ciuic"]
        overrides = [part for item in (*SETTINGS, *settings) for part in ("--set", item)]
        done = subprocess.run(
            [*command, "submit", str(RECIPE), "--root", str(root), *overrides],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
        )
        run = Root(path=root).run(done.stdout.split()[-1])
        with (scratch / f"supervisor-{index}.log").open("wb") as log:
            supervisor = subprocess.Popen(
                [*command, "supervise", "--root", str(root)], stdout=log, stderr=log, cwd=HERE
            )
            try:
                while case.tries < tries and hit(case, run, partial(worker_pid, run, 1), number, supervisor):
                    pass
                case.looked = evidence_times(run)
            finally:
                subprocess.run([*command, "cancel", run.run_id, "--root", str(root)], check=False, cwd=HERE)
                supervisor.terminate()
                supervisor.wait(30)
        told = [event.body for event in JournalReader(run.journal).new() if type(event.body) is Judged]
        case.detected = [body.detected_s for body in told]
        found.append(case)
    return found


def evidence_times(run: RunDir) -> list[float]:
    """Seconds of each look that a restart waited for."""
    found = [
        read_evidence(path.parent, path.stem)
        for path in run.attempts.glob("*/evidence/g[0-9][0-9][0-9][0-9]/*.json")
    ]
    return [item.took_s for item in found if item and item.why == "before the workers are ended"]


def worker_pid(run: RunDir, rank: int) -> int:
    """The pid of a rank of the newest generation, from the node's beat."""
    newest = max(generations(run))
    pids: list[int] = []

    def look() -> bool:
        for path in run.attempt(newest[0]).beats.iterdir():
            beat = read_beat(path)
            if beat and (beat.attempt, beat.generation) == newest:
                pids.extend(worker.pid for worker in beat.workers if worker.rank == rank)
        return bool(pids)

    if not wait(look, 10):
        raise RuntimeError(f"no beat of {newest} names rank {rank}")
    return pids[0]


# torchrun


def torchrun(tries: int) -> list[str]:
    """`torchrun --max-restarts`: its workers resume from the newest checkpoint."""
    return [
        sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        f"--max-restarts={tries}", "-m", "trainer",
    ]  # fmt: skip


def ft_launcher(venv: Path, tries: int) -> list[str]:
    """`ft_launcher` of nvidia-resiliency-ext from its own environment; workers are ours and send it a heartbeat a step.

    Its limits are given the values that ciuic uses here: 60 s until the first step, then 8 s; looked at each second.
    """
    packages = next((venv / "lib").glob("python3*/site-packages"))
    return [
        str(venv / "bin" / "ft_launcher"), "--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0", f"--max-restarts={tries}", "--monitor-interval=0.1",
        "--ignore-missing-fault-tol-cfg", "--ft-workload-check-interval=1", "--ft-initial-rank-heartbeat-timeout=60",
        "--ft-rank-heartbeat-timeout=8", "--no-python", sys.executable, "-P",
        str(HERE / "benchmarks" / "ft_worker.py"), str(packages),
    ]  # fmt: skip


def peer_case(name: str, command: list[str], number: signal.Signals, tries: int, scratch: Path) -> Case:
    """A launcher that restarts its workers itself, launched afresh whenever it gave up."""
    case = Case(name=name)
    recipe = scratch / "recipe.toml"
    write_recipe(recipe)
    short = f"{Path(command[0]).name}-{number.name}"
    for launch in range(1, 2 * tries + 1):
        if case.tries >= tries:
            break
        run = RunDir(path=scratch / f"{short}-{launch}")
        with (scratch / f"{short}-{launch}.log").open("wb") as log:
            launcher = subprocess.Popen(
                [*command, "--config", str(recipe), "--run-dir", str(run.path)],
                stdout=log, stderr=log, cwd=scratch, start_new_session=True,
                env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **extensions()},
            )  # fmt: skip
            try:
                victim = partial(child_with_rank, launcher.pid, 1)
                while case.tries < tries and hit(case, run, victim, number, launcher):
                    pass
            finally:
                end_tree(launcher)
    return case


def write_recipe(path: Path) -> None:
    """The demo's recipe with the benchmark's settings, as a file of its own."""
    path.write_text(dump(load(RECIPE, SETTINGS)))


def extensions() -> dict[str, str]:
    """The directory of prebuilt operators: both launchers use the same, so that neither compiles."""
    return {"TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "share" / "ciuic" / "torch_extensions")}


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from children(int(child))


def child_with_rank(pid: int, rank: int) -> int:
    for child in children(pid):
        try:
            if f"RANK={rank}".encode() in (Path(f"/proc/{child}/environ")).read_bytes().split(b"\0"):
                return child
        except OSError:
            continue
    raise RuntimeError(f"torchrun has no child with RANK={rank}")


def end_tree(launcher: subprocess.Popen[bytes]) -> None:
    for pid in [*children(launcher.pid), launcher.pid] if launcher.poll() is None else []:
        with_suppressed = (ProcessLookupError, FileNotFoundError)
        try:
            os.kill(pid, signal.SIGKILL)
        except with_suppressed:
            continue
    launcher.wait(30)


def peers(nvrx: Path | None, tries: int) -> list[tuple[str, list[str], signal.Signals]]:
    """(case, command, fault) of the launchers that stand beside ours."""
    found = [("torchrun --max-restarts, SIGKILL", torchrun(tries), signal.SIGKILL)]
    if nvrx is not None:
        command = ft_launcher(nvrx.resolve(), tries)
        found += [
            (f"ft_launcher, {number.name}", command, number) for number in (signal.SIGKILL, signal.SIGSTOP)
        ]
    return found


# the table


def against(case: Case, launcher: str, cases: list[Case]) -> str:
    """The ratio of medians to this launcher's after the same fault; a dash where there is none."""
    fault = case.name.rsplit(", ", 1)[1]
    peer = next((its for its in cases if its.name.startswith(launcher) and its.name.endswith(fault)), None)
    if peer is None or not peer.seconds:
        return "–"
    return f"{statistics.median(case.seconds) / statistics.median(peer.seconds):.2f}"


def table(cases: list[Case], command: str) -> str:
    lines = [
        (
            f"`{command}` on {os.cpu_count()} cores ({platform.machine()}), two ranks on CPU, the model of "
            "`configs/tiny-local.toml`, a checkpoint each 5 steps. Seconds from the signal to the next completed "
            "optimiser step; ratios of medians, for the same fault."
        ),
        "",
        "| case | recovered | fault to verdict | median | fastest | slowest | against torchrun | against ft_launcher |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        counted = f"{len(case.seconds)} of {case.tries}"
        if not case.seconds:
            lines.append(f"| {case.name} | {counted} | – | – | – | – | – | – |")
            continue
        middle = statistics.median(case.seconds)
        seen = f"{statistics.median(case.detected):.1f} s" if case.detected else "–"
        ratios = " | ".join(against(case, peer, cases) for peer in ("torchrun", "ft_launcher"))
        lines.append(
            f"| {case.name} | {counted} | {seen} | {middle:.2f} s | {min(case.seconds):.2f} s "
            f"| {max(case.seconds):.2f} s | {ratios} |"
        )
    looked = [seconds for case in cases for seconds in case.looked]
    if looked:
        took = statistics.median(looked)
        lines += [
            "",
            f"Of a recovery from SIGSTOP, keeping the evidence takes {took:.2f} s (median of {len(looked)}).",
        ]
    lines += [
        "",
        TIMEOUTS,
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--no-write", action="store_true", help="print the table, leave the document alone")
    parser.add_argument("--nvrx", type=Path, help="environment with nvidia-resiliency-ext: adds ft_launcher")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ciuic-recovery-"))
    cases = (
        ("ciuic in place, SIGKILL", signal.SIGKILL, ()),
        ("ciuic new attempt, SIGKILL", signal.SIGKILL, ("supervisor.in_place_limit=0",)),
        ("ciuic in place, SIGSTOP", signal.SIGSTOP, ()),
    )
    chosen = tuple(case for case in cases if options.only in case[0])
    try:
        found = ciuic_cases(options.tries, scratch, chosen)
        for name, command, number in peers(options.nvrx, options.tries):
            if options.only in name:
                found.append(peer_case(name, command, number, options.tries, scratch))
    finally:
        print(f"logs: {scratch}")
    beside = " --nvrx VENV" if options.nvrx else ""
    text = table(found, f"python -P benchmarks/recovery.py --tries {options.tries}{beside}")
    print(text)
    if not options.no_write:
        put("recovery", text)
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
