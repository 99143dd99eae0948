"""How long a save stops the training, and how long a load takes: ciuic beside DeepSpeed's own ways, by model size.

    python -P benchmarks/checkpoints.py              # three model sizes; rewrites the table in docs/benchmarks.md
    python -P benchmarks/checkpoints.py --hidden 128 --saves 3 --no-write

One rank on CPU, ZeRO 2, the same model, data and optimizer for each way, each in a process of its own, one after the
other. Between two saves the model trains, so that a save in the background has something to be beside of.

DeepSpeed's background engine ("decoupled") runs here with its plain file writer: its fast one needs a GPU's pinned
memory. Its save is complete at the next step, which waits for it; that wait is counted as standing still. As it is, it
refuses what DeepSpeed's own ZeRO 1 and 2 hand to it (slices of the master weights that still require a gradient); the
row "detached" is with a copy of that structure whose tensors do not, made by this script, and not counted against it.

A load reads what was just saved, from the page cache. Ours compares every checksum first, as each start does.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.document import put

HERE = Path(__file__).resolve().parent.parent
NAMES = {
    "plain": "`engine.save_checkpoint` (not synced)",
    "decoupled": "DeepSpeed, decoupled writer (not synced)",
    "detached": "DeepSpeed, decoupled writer, detached",
    "ciuic": "ciuic",
    "ciuic-foreground": "ciuic, `background = false`",
}
STEPS_BETWEEN = 6
LENGTH = 64
VOCABULARY = 1024


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Medians over the saves after the first; seconds and bytes. `load`: what it took, or why it did not work."""

    blocked_s: float
    complete_s: float
    load: float | str
    size: int
    step_s: float  # a step while nothing is being saved
    beside_s: float  # the steps right after a save, where a save in the background is written
    parameters: int


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def recipe(way: str, hidden: int):
    """The configuration of one way and size."""
    from contract.config import parse

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
    return parse(value, source="benchmark", bases=[HERE])


class Training:
    """An engine that trains on one batch for ever, and DeepSpeed's own ways to save and load it."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - replaced as a whole
    wait_counts = False  # whether a save ends in the step after it

    def __init__(self, config, place: Path) -> None:
        import torch

        from contract.layout import RunDir
        from trainer.distributed import Ranks
        from trainer.engine import build_engine, deepspeed_config
        from trainer.groups import Layout, groups_of
        from trainer.model import architecture, build_model
        from trainer.norms import Watch
        from trainer.worker import worker_from_environment

        self.config, self.run = config, RunDir(path=place)
        self.run.checkpoints.mkdir(parents=True)
        self.worker = worker_from_environment(os.environ, place)
        self.ranks = Ranks(self.worker, accelerator="cpu", timeout_s=600, patience_s=60)
        shape = architecture(config.model, vocab_size=VOCABULARY, sequence_length=LENGTH)
        model = build_model(shape, seed=1)
        settings = deepspeed_config(config, ranks=1) | self.settings
        watch = Watch(limit=lambda: float("inf"))
        self.engine = build_engine(config, settings, model, Layout.BY_LAYER, watch)
        self.groups = groups_of(self.engine.module, config.model.layers, Layout.BY_LAYER)
        dice = torch.Generator().manual_seed(1)
        self.batch = torch.randint(0, VOCABULARY, (2, LENGTH), generator=dice)
        self.names: list[str] = []
        self.started = 0.0

    def step(self) -> None:
        self.engine.backward(self.engine(input_ids=self.batch, labels=self.batch, use_cache=False).loss)
        self.engine.step()

    def save(self, number: int) -> None:
        self.names.append(f"save-{number}")
        self.engine.save_checkpoint(str(self.run.checkpoints), tag=self.names[-1])
        if number > 1:
            shutil.rmtree(self.run.checkpoints / self.names[-3])

    def saving(self) -> bool:
        """Whether a save is still being written."""
        return False

    def complete_s(self, stood_s: float) -> float:
        """Seconds from the beginning of the newest save to its end."""
        return stood_s

    def load(self) -> None:
        self.engine.load_checkpoint(str(self.run.checkpoints), tag=self.names[-1])

    @property
    def newest(self) -> Path:
        return self.run.checkpoints / self.names[-1]


class Decoupled(Training):
    """DeepSpeed's background engine as it is."""

    settings = {"checkpoint": {"writer": {"type": "python", "decoupled": True, "data_parallel": "replica"}}}  # noqa: RUF012
    wait_counts = True


class Detached(Decoupled):
    """The same, given what its queue takes."""

    def __init__(self, config, place: Path) -> None:
        super().__init__(config, place)
        writer = self.engine.checkpoint_engine
        plain = writer.save
        writer.save = lambda state_dict, path: plain(detached(state_dict), path)


class Ours(Training):
    def __init__(self, config, place: Path) -> None:
        from contract.page import NullPage
        from trainer.checkpoint import Checkpoints

        super().__init__(config, place)
        self.checkpoints = Checkpoints(config, self.worker, self.ranks, NullPage())
        self.checkpoints.attach(self.engine, {})

    def step(self) -> None:
        super().step()
        self.checkpoints.look(self.checkpoints.wishes())

    def save(self, number: int) -> None:
        from trainer.progress import Progress
        from trainer.step import Wishes

        self.started = time.time()
        progress = Progress(step=number + 1)
        self.checkpoints.save(self.engine, progress, Wishes(), loss=1.0, val_loss=None, must=False)
        self.names.append(self.run.checkpoint(number + 1, self.worker.attempt, self.worker.generation).name)

    def saving(self) -> bool:
        return self.checkpoints.wishes().saving

    def complete_s(self, stood_s: float) -> float:  # noqa: ARG002 - the manifest tells
        from contract import manifest

        return manifest.decode((self.newest / manifest.NAME).read_bytes()).saved_at - self.started

    def load(self) -> None:
        from contract import manifest
        from trainer.progress import Progress
        from trainer.resume import ResumePoint

        if not manifest.examine(self.newest, deep=True).valid:
            raise SystemExit("what was saved is not valid")
        point = ResumePoint(generation=0, checkpoint=self.newest.name, progress=Progress(), ranks=1)
        self.checkpoints.load(self.engine, point, self.groups)


WAYS = {
    "plain": Training,
    "decoupled": Decoupled,
    "detached": Detached,
    "ciuic": Ours,
    "ciuic-foreground": Ours,
}


def detached(value):
    """The same structure with tensors that no gradient is asked of; nothing is copied."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return type(value)((key, detached(item)) for key, item in value.items())
    if isinstance(value, list):
        return [detached(item) for item in value]
    return value


def one(way: str, hidden: int, saves: int, place: Path) -> Measured:
    """Measure one way in this process."""
    import trainer.preload  # noqa: F401

    training = WAYS[way](recipe(way, hidden), place)
    step_s = statistics.median(timed(training.step) for _ in range(STEPS_BETWEEN + 2))
    blocked, complete, beside = [], [], []
    for number in range(saves + 1):
        stood = timed(lambda number=number: training.save(number))
        first = timed(training.step)
        if training.wait_counts:
            stood += max(0.0, first - step_s)
        steps = [first]
        while len(steps) < STEPS_BETWEEN or training.saving():
            steps.append(timed(training.step))
        blocked.append(stood)
        complete.append(training.complete_s(stood))
        beside.append(statistics.mean(steps[1:]))
    size = sum(path.stat().st_size for path in training.newest.rglob("*") if path.is_file())
    try:
        load: float | str = timed(training.load)
    except Exception as error:
        load = said(error)
    parameters = sum(item.numel() for item in training.engine.module.parameters())
    return Measured(
        blocked_s=statistics.median(blocked[1:]),
        complete_s=statistics.median(complete[1:]),
        load=load,
        size=size,
        step_s=step_s,
        beside_s=statistics.median(beside[1:]),
        parameters=parameters,
    )


def said(error: BaseException) -> str:
    """The first sentence of an error, as a cell of a table."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text.partition(". ")[0].replace("|", "/")[:200]


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
    for line in reversed(done.stdout.splitlines()):
        kind, _, rest = line.partition(" ")
        if kind == "measured":
            return Measured(**json.loads(rest))
        if kind == "failed":
            return str(json.loads(rest))
    return f"it ended with {done.returncode} and said nothing"


def row(way: str, got: Measured | str, plain: Measured | None) -> str:
    if isinstance(got, str):
        return f"| {NAMES[way]} | | did not work: {got} | | | | |"
    ratio = f"{got.blocked_s / plain.blocked_s:.2f}" if plain else ""
    load = got.load if isinstance(got.load, str) else f"{got.load:.2f}"
    return (
        f"| {NAMES[way]} | {got.parameters / 1e6:.1f} M, {got.size / 1e6:.0f} MB | {got.blocked_s:.3f} | {ratio} "
        f"| {got.complete_s:.2f} | {got.beside_s / got.step_s:.2f} | {load} |"
    )


def rows(hiddens: list[int], saves: int, scratch: Path) -> list[str]:
    """Lines of the table, told as they come."""
    found = []
    for hidden in hiddens:
        plain: Measured | None = None
        for way in WAYS:
            got = measure(way, hidden, saves, scratch)
            if way == "plain" and isinstance(got, Measured):
                plain = got
            found.append(row(way, got, plain))
            print(found[-1], flush=True)
    return found


def table(lines: list[str], hiddens: list[int], saves: int) -> str:
    sizes = " ".join(f"--hidden {hidden}" for hidden in hiddens)
    where = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = [
        f"`python -P benchmarks/checkpoints.py {sizes} --saves {saves}`: one rank on CPU, ZeRO 2; {where}; medians.",
        "",
        "| way | model, checkpoint | stands still (s) | to the plain save | complete after (s) | step beside it | load (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, action="append", help="size of the model; again for more sizes")
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--no-write", action="store_true", help="print the table only")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        try:
            found = one(given.one, given.hidden[0], given.saves, given.place)
            print("measured " + json.dumps(vars(found)), flush=True)
        except Exception as error:
            print("failed " + json.dumps(said(error)), flush=True)
        for child in multiprocessing.active_children():  # DeepSpeed's writer would outlive us
            child.kill()
        os._exit(0)
    hiddens = given.hidden or [256, 512, 1024]
    made = table(rows(hiddens, given.saves, given.scratch), hiddens, given.saves)
    if not given.no_write:
        put("checkpoints", made)


if __name__ == "__main__":
    main()
