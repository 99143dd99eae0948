"""Memory of a rank: what offload costs, and what building a network takes, with and without its division by ZeRO 3.

    python -P benchmarks/memory.py [--tries 3] [--steps 8]      # writes its tables into docs/benchmarks.md

Two ranks with one thread each, on the CPU, each arm in processes of its own, arms in turn. Here the host's memory is
the device's: offload moves nothing and can free nothing. The rows show its price and that the losses stay; what it
frees is measured by benchmarks/gpu/numerics.py. The peak is that of a rank's process, without what it had imported.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import put

ROOT = Path(__file__).resolve().parents[1]
RANKS = 2
OFFLOAD: dict[str, dict[str, Any]] = {
    "ZeRO 2": {"zero_stage": 2},
    "ZeRO 2, optimizer offloaded": {"zero_stage": 2, "offload_optimizer": True},
    "ZeRO 3": {"zero_stage": 3},
    "ZeRO 3, optimizer offloaded": {"zero_stage": 3, "offload_optimizer": True},
    "ZeRO 3, optimizer and weights offloaded": {
        "zero_stage": 3,
        "offload_optimizer": True,
        "offload_param": True,
    },
}
BUILT = {"whole (ZeRO 2)": {"zero_stage": 2}, "divided (ZeRO 3)": {"zero_stage": 3}}


def config_of(data: Path, steps: int, zero: dict[str, Any], *, built: bool) -> Any:
    """The run of one arm: the 100m preset with a vocabulary that makes it so; to train, three of its layers."""
    from contract import config as configuration

    value = {
        "run": {"steps": steps},
        "job": {"ranks_per_node": RANKS},
        "data": {"path": str(data)},
        "model": {"preset": "100m", "vocab_size": 32768}
        if built
        else {"preset": "100m", "vocab_size": 8192, "layers": 3},
        "schedule": {"kind": "constant", "warmup": 0},
        "batch": {"global_batch_size": 2 * RANKS, "micro_batch_size": 1, "sequence_length": 64},
        "deepspeed": zero,
        "precision": {"dtype": "fp32"},
        "checkpoint": {"interval_steps": 100_000},
    }
    return configuration.parse(value, source="benchmark", bases=[data])


def memory(key: str) -> float:
    """MB of this process: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(key)).split()[1]) / 1024


def run_arm(zero: dict[str, Any], data: Path, steps: int, *, built: bool) -> dict[str, Any]:
    """In each rank's own process."""
    from trainer import preload  # noqa: F401 - first: quiet imports, no device claimed

    config = config_of(data, steps, zero, built=built)
    from contract.layout import RunDir
    from contract.page import WorkerPage
    from trainer import assembly
    from trainer.batch.clock import NoClock
    from trainer.distributed import Ranks
    from trainer.model import build_model
    from trainer.stop import install
    from trainer.worker import worker_from_environment

    run = RunDir(path=data.parent / f"run-{os.environ['MASTER_PORT']}")
    worker = worker_from_environment(os.environ, run.path)
    given = assembly.plan(config, run, ranks=RANKS)
    ranks = Ranks(worker, accelerator="cpu", timeout_s=120, patience_s=60)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    if built:
        divided = given.settings if zero["zero_stage"] == 3 else None
        model = build_model(given.shape, seed=1, divided=divided)
        whole = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters()) * 4 / 2**20
        return {"peak_mb": memory("VmHWM") - before, "whole_mb": whole}
    page = WorkerPage.create(run.path / f"page-{worker.rank}", rank=worker.rank)
    training, progress = assembly.assemble(given, worker, ranks, page, install())
    seconds, losses = [], []
    for _ in range(steps):
        begun = time.process_time()
        window, _, outcome = training.step(progress, NoClock())
        training.settle(outcome, window.taken, progress)
        seconds.append(time.process_time() - begun)
        progress = progress.after(window.taken, outcome.tokens)
        losses.append(outcome.loss)
    return {
        "peak_mb": memory("VmHWM") - before,
        "cpu_s": statistics.median(seconds[steps // 4 :]),
        "losses": losses,
    }


def ranks_of(zero: dict[str, Any], data: Path, steps: int, *, built: bool) -> dict[str, Any]:
    """What the rank with the highest peak found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    (data.parent / f"run-{port}").mkdir()
    command = [sys.executable, "-P", __file__, "--data", str(data), "--steps", str(steps)]
    command += ["--arm", json.dumps(zero), *(["--built"] if built else [])]
    running = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    found = []
    try:
        for process in running:
            text, _ = process.communicate(timeout=900)
            if process.returncode:
                raise SystemExit(f"{zero} ended with {process.returncode}")
            found.append(json.loads(text.splitlines()[-1]))
    finally:
        for process in running:
            process.kill()
    return max(found, key=lambda one: one["peak_mb"])


def measure(data: Path, tries: int, steps: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Both tables' figures; refuses arms that did not train alike."""
    found: tuple[dict[str, list[Any]], dict[str, list[Any]]] = (
        {name: [] for name in OFFLOAD},
        {name: [] for name in BUILT},
    )
    for kept, arms, built in ((found[0], OFFLOAD, False), (found[1], BUILT, True)):
        for number in range(tries):
            for name in list(arms) if number % 2 == 0 else list(reversed(arms)):
                kept[name].append(ranks_of(arms[name], data, steps, built=built))
                shown = {key: value for key, value in kept[name][-1].items() if key != "losses"}
                print(name, shown, flush=True)
    for name, rows in found[0].items():
        pairs = zip(rows[0]["losses"], found[0]["ZeRO 2"][0]["losses"], strict=True)
        if any(abs(mine - plain) > 1e-3 * plain for mine, plain in pairs):
            raise SystemExit(f"{name} has other losses than ZeRO 2: {rows[0]['losses']}")
    return found


def table(trained: dict[str, list[Any]], built: dict[str, list[Any]], command: str) -> str:
    """Markdown."""

    def middle(rows: list[Any], key: str) -> float:
        return statistics.median(row[key] for row in rows)

    whole = built["whole (ZeRO 2)"][0]["whole_mb"]
    lines = [
        (
            f"`{command}` on {os.cpu_count()} cores: two ranks with one thread each, in float32; "
            f"medians over {len(trained['ZeRO 2'])} tries. **On a CPU offload moves nothing**: host and device are one "
            "memory. The losses are the same."
        ),
        "",
        "| training | processor time of a step against its stage without offload | peak memory of a rank |",
        "|---|---|---|",
    ]
    for name, rows in trained.items():
        base = trained[name.partition(",")[0]]
        work = statistics.median(
            mine["cpu_s"] / plain["cpu_s"] for mine, plain in zip(rows, base, strict=True)
        )
        lines.append(f"| {name} | {work:.2f} | {middle(rows, 'peak_mb'):.0f} MB |")
    lines += [
        "",
        f"| building a network of {whole:.0f} MB | peak memory of a rank against the network |",
        "|---|---|",
    ]
    for name, rows in built.items():
        peak = middle(rows, "peak_mb") / whole
        lines.append(f"| {name} | {peak:.2f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; with --arm: be one rank of one arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--arm", type=json.loads)
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--dry", action="store_true", help="print the tables, leave docs/benchmarks.md alone")
    given = parser.parse_args(arguments)
    if given.arm:
        found = run_arm(given.arm, given.data, given.steps, built=given.built)
        print("\n" + json.dumps(found), flush=True)
        os._exit(0)  # no orderly end of process groups
    from trainer.data.prepare import Recipe, prepare

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tokens"
        prepare([ROOT / "trainer"], data, Recipe(vocab_size=0, validation_share=0.1))
        command = f"python -P benchmarks/memory.py --tries {given.tries} --steps {given.steps}"
        text = table(*measure(data, given.tries, given.steps), command)
    print(text)
    if not given.dry:
        put("memory", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
