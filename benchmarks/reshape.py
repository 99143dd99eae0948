"""Going on with other ranks: ciuic reads the shards where they lie, DeepSpeed converts them to a universal checkpoint.

    python -P benchmarks/reshape.py             # rewrites the table in docs/benchmarks.md
    python -P benchmarks/reshape.py --no-write

One rank writes a checkpoint; then it is made usable for two. Ours: everything that two ranks do between "starting from"
and the loaded engine, as the trainer logs it. DeepSpeed's: `ds_to_universal` in two processes of its own (the imports
of a converter that runs before every start are part of its price, and said apart); loading its result comes on top.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.document import put
from contract.config import dump, load
from contract.layout import RunDir
from contract.manifest import directories

HERE = Path(__file__).resolve().parent.parent
SETTINGS = (
    "run.steps=1",
    "data.evaluate_interval_steps=0",
    "model.hidden_size=384",
    "model.intermediate_size=1024",
    "model.moe_intermediate_size=256",
    "model.layers=4",
)
PLAIN = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(HERE)}


@dataclass
class Row:
    """Seconds of each try for one ZeRO stage, and the bytes that each way wrote to the disk."""

    stage: int
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    imports: list[float] = field(default_factory=list)
    size: int = 0
    written: int = 0


def run(command: list[str], **more: str) -> tuple[float, str]:
    """Seconds and output of a command that must succeed."""
    started = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **PLAIN, **more}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return time.perf_counter() - started, done.stdout + done.stderr


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def measure(row: Row, place: Path, tries: int) -> None:
    """Write once with one rank, then go on with two, `tries` times each way."""
    source, recipe = place / "source", place / "recipe.toml"
    keys = [*SETTINGS, f"deepspeed.zero_stage={row.stage}"]
    trainer = ["-P", "-m", "trainer", "--config", str(recipe), "--run-dir"]
    recipe.write_text(dump(load(HERE / "configs" / "tiny-local.toml", [*keys, "job.ranks_per_node=1"])))
    run([sys.executable, *trainer, str(source)])
    checkpoint = directories(RunDir(path=source))[0]
    row.size = size_of(checkpoint)
    recipe.write_text(dump(load(HERE / "configs" / "tiny-local.toml", [*keys, "run.steps=2"])))
    torchrun = [sys.executable, "-P", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    for number in range(tries):
        copy, universal = place / f"run-{number}", place / f"universal-{number}"
        shutil.copytree(source, copy)
        _, text = run([*torchrun, "--master-port", "29713", sys.executable, *trainer, str(copy)])
        found = re.search(r"carried over .* in ([0-9.]+) s", text)
        if found is None:
            raise SystemExit(f"nothing was carried over\n{text}")
        row.ours.append(float(found[1]))
        command = [sys.executable, "-P", "-m", "deepspeed.checkpoint.ds_to_universal"]
        row.imports.append(run([*command, "--help"])[0])
        options = ["--input_folder", str(checkpoint), "--output_folder", str(universal)]
        row.theirs.append(run([*command, *options, "--inject_missing_state"])[0])
        row.written = size_of(universal)
        shutil.rmtree(universal)
        shutil.rmtree(copy)


def table(rows: list[Row], tries: int) -> str:
    what = f"from one rank to two on {os.cpu_count()} cores, float32 state of a model in bf16, medians."
    columns = (
        "ZeRO",
        "checkpoint",
        "ciuic, until loaded",
        "ds_to_universal, before loading",
        "of it imports",
    )
    written = ("ratio", "written to disk by ciuic", "by ds_to_universal")
    lines = [
        f"`python -P benchmarks/reshape.py --tries {tries}`: {what}",
        "",
        f"| {' | '.join((*columns, *written))} |",
        "|---" * len((*columns, *written)) + "|",
    ]
    for row in rows:
        ours, theirs = statistics.median(row.ours), statistics.median(row.theirs)
        lines.append(
            f"| {row.stage} | {row.size / 1e6:.0f} MB | {ours:.2f} s | {theirs:.2f} s | "
            f"{statistics.median(row.imports):.2f} s | {ours / theirs:.3f} | 0 | {row.written / 1e6:.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    rows = [Row(stage=stage) for stage in (1, 2, 3)]
    for row in rows:
        place = Path(tempfile.mkdtemp(prefix="ciuic-reshape-"))
        try:
            measure(row, place, given.tries)
        finally:
            shutil.rmtree(place)
    made = table(rows, given.tries)
    print(made)
    if not given.no_write:
        put("reshape", made)


if __name__ == "__main__":
    main()
