"""How long a save stops the training: ciuic beside DeepSpeed's plain save and its own background engine.

    python -P benchmarks/checkpoints.py              # three model sizes; rewrites the table in docs/benchmarks.md
    python -P benchmarks/checkpoints.py --hidden 128 --saves 3 --no-write

One rank on CPU, the same model, data and optimizer for each way, each in a process of its own, one after the other.
Between two saves the model trains, so that a save in the background has something to be beside of.

DeepSpeed's background engine ("decoupled") runs here with its plain file writer: its fast one needs a GPU's pinned
memory. Its save is complete at the next step, which waits for it; that wait is counted as standing still.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

# ruff: noqa: PLC0415 - torch is imported by the measuring process only, after its variables are set
HERE = Path(__file__).resolve().parent.parent
DOCUMENT = HERE / "docs" / "benchmarks.md"
MARKS = ("<!-- checkpoints: made by benchmarks/checkpoints.py -->", "<!-- /checkpoints -->")
WAYS = ("plain", "deepspeed-background", "ciuic", "ciuic-foreground")
NAMES = {
    "plain": "`engine.save_checkpoint` (not synced)",
    "deepspeed-background": "DeepSpeed, decoupled writer (not synced)",
    "ciuic": "ciuic",
    "ciuic-foreground": "ciuic, `background = false`",
}
STEPS_BETWEEN = 6
LENGTH = 64


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Medians over the saves after the first; seconds and bytes."""

    blocked_s: float
    complete_s: float
    load_s: float
    size: int
    step_s: float  # a step while nothing is being saved
    beside_s: float  # the steps right after a save, where a save in the background is written
    parameters: int


def one(way: str, hidden: int, saves: int, place: Path) -> Measured:
    """Measure one way in this process."""
    import trainer.preload  # noqa: F401

    training = build(way, hidden, place)
    step_s = statistics.median(timed(training.step) for _ in range(STEPS_BETWEEN + 2))
    blocked, complete, beside = [], [], []
    for number in range(saves + 1):
        started = time.perf_counter()
        training.save(number)
        stood = time.perf_counter() - started
        first = timed(training.step)
        if way == "deepspeed-background":  # its commit is part of the next step
            stood += max(0.0, first - step_s)
            complete.append(time.perf_counter() - started)
        steps = [first]
        while len(steps) < STEPS_BETWEEN or not training.done():
            steps.append(timed(training.step))
        if way != "deepspeed-background":
            complete.append(training.complete_s() or stood)
        blocked.append(stood)
        beside.append(statistics.mean(steps[1:]))
    size = sum(path.stat().st_size for path in training.newest().rglob("*") if path.is_file())
    load_s = timed(training.load) if way in {"plain", "ciuic"} else float("nan")
    parameters = sum(item.numel() for item in training.engine.module.parameters())
    if way == "deepspeed-background":
        training.engine.checkpoint_engine.cleanup()  # ends its process, which would outlive us
    return Measured(
        blocked_s=statistics.median(blocked[1:]),
        complete_s=statistics.median(complete[1:]),
        load_s=load_s,
        size=size,
        step_s=step_s,
        beside_s=statistics.median(beside[1:]),
        parameters=parameters,
    )


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def build(way: str, hidden: int, place: Path) -> SimpleNamespace:
    """Engine and the four things that are done with it."""
    import torch

    from contract.config import parse
    from contract.layout import RunDir
    from contract.page import NullPage
    from trainer.checkpoint import Checkpoints
    from trainer.distributed import Ranks
    from trainer.engine import build_engine, deepspeed_config
    from trainer.groups import Layout, groups_of
    from trainer.model import architecture, build_model
    from trainer.norms import Watch
    from trainer.progress import Progress
    from trainer.resume import ResumePoint
    from trainer.step import Wishes
    from trainer.worker import worker_from_environment

    value = {
        "run": {"steps": 10_000},
        "job": {"ranks_per_node": 1},
        "data": {"path": str(HERE / "data" / "stdlib")},
        "model": {
            "hidden_size": hidden,
            "intermediate_size": hidden * 4,
            "moe_intermediate_size": hidden,
            "layers": 4,
            "q_lora_rank": 0,
            "kv_lora_rank": hidden // 4,
            "routed_experts": 8,
        },
        "batch": {"global_batch_size": 2, "micro_batch_size": 2, "sequence_length": LENGTH},
        "deepspeed": {"zero_stage": 2},
        "checkpoint": {"background": way != "ciuic-foreground", "keep_last": 2},
    }
    config = parse(value, source="benchmark", bases=[HERE])
    run = RunDir(path=place)
    run.checkpoints.mkdir(parents=True)
    worker = worker_from_environment(os.environ, place)
    ranks = Ranks(worker, accelerator="cpu", timeout_s=600, patience_s=60)
    model = build_model(architecture(config.model, vocab_size=1024, sequence_length=LENGTH), seed=1)
    groups = groups_of(model, config.model.layers, Layout.BY_LAYER)
    settings = deepspeed_config(config, ranks=1)
    if way == "deepspeed-background":
        settings["checkpoint"] = {"writer": {"type": "python", "decoupled": True, "data_parallel": "replica"}}
    engine = build_engine(config, settings, model, groups, Watch(limit=lambda: float("inf")))
    batch = torch.randint(0, 1024, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    checkpoints = Checkpoints(config, worker, ranks, NullPage())
    ours = way.startswith("ciuic")
    if ours:
        checkpoints.attach(engine, {})
    names: list[str] = []

    def step() -> None:
        engine.backward(engine(input_ids=batch, labels=batch, use_cache=False).loss)
        engine.step()
        if ours:
            checkpoints.look(checkpoints.wishes())

    started_at: list[float] = []

    def save(number: int) -> None:
        started_at.append(time.perf_counter())
        if ours:
            progress = Progress(step=number + 1)
            checkpoints.save(engine, progress, Wishes(), loss=1.0, val_loss=None, must=False)
            names.append(run.checkpoint(number + 1, worker.attempt, worker.generation).name)
        else:
            names.append(f"save-{number}")
            engine.save_checkpoint(str(run.checkpoints), tag=names[-1])
            if number > 1:
                shutil.rmtree(run.checkpoints / names[-3])

    def complete_s() -> float:
        if not ours:
            return 0.0
        from contract.manifest import decode

        published = decode((run.checkpoints / names[-1] / "MANIFEST.json").read_bytes()).saved_at
        return published - (time.time() - (time.perf_counter() - started_at[-1]))

    def load() -> None:
        if ours:
            point = ResumePoint(generation=0, checkpoint=names[-1], progress=Progress(), ranks=1)
            checkpoints.load(engine, point, groups)
        else:
            engine.load_checkpoint(str(run.checkpoints), tag=names[-1])

    return SimpleNamespace(
        engine=engine,
        step=step,
        save=save,
        load=load,
        complete_s=complete_s,
        done=lambda: not (ours and checkpoints.wishes().saving),
        newest=lambda: run.checkpoints / names[-1],
    )


def measure(way: str, hidden: int, saves: int, scratch: Path) -> Measured | str:
    """One way in a process of its own; what went wrong when it did."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--one", way, "--hidden", str(hidden)]
    command += ["--saves", str(saves), "--place", str(place / "run")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "CROSS_SIZE": "1",  # DeepSpeed's own launcher sets these two, and its background engine needs them
        "CROSS_RANK": "0",
        "CIUIC_GENERATION": "1",
    }
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode or not lines:
        errors = [line for line in done.stderr.splitlines() if re.match(r"(\[rank0\]: )?\w*Error: ", line)]
        return (errors or ["it said nothing"])[0].removeprefix("[rank0]: ").partition(",")[0]
    return Measured(**json.loads(lines[-1].removeprefix("measured ")))


def rows(hiddens: list[int], saves: int, scratch: Path) -> list[str]:
    """Lines of the table, told as they come."""
    found = []
    for hidden in hiddens:
        plain = None
        for way in WAYS:
            got = measure(way, hidden, saves, scratch)
            if isinstance(got, str):
                line = f"| {NAMES[way]} | | did not work: {got} | | | | |"
            else:
                plain = plain or got
                line = (
                    f"| {NAMES[way]} | {got.parameters / 1e6:.1f} M, {got.size / 1e6:.0f} MB "
                    f"| {got.blocked_s:.3f} | {got.blocked_s / plain.blocked_s:.2f} | {got.complete_s:.2f} "
                    f"| {got.beside_s / got.step_s:.2f} | {'' if got.load_s != got.load_s else f'{got.load_s:.2f}'} |"
                )
            print(line, flush=True)
            found.append(line)
    return found


def write(lines: list[str]) -> None:
    """Put the table into the document, between its marks."""
    head = [
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; medians.",
        "",
        "| way | model, checkpoint | stands still (s) | to the plain save | complete after (s) | step beside it | load (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    DOCUMENT.write_text(before + MARKS[0] + "\n" + "\n".join([*head, *lines]) + "\n" + MARKS[1] + after)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, action="append")
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--one", default="")
    parser.add_argument("--place", type=Path)
    given = parser.parse_args()
    if given.one:
        found = one(given.one, given.hidden[0], given.saves, given.place)
        print("measured " + json.dumps(vars(found)), flush=True)
        os._exit(0)
    lines = rows(given.hidden or [256, 512, 1024], given.saves, given.scratch)
    if not given.no_write:
        write(lines)


if __name__ == "__main__":
    main()
