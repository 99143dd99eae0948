"""Formats beside each other on one GPU: fp16, bf16, and fp8 with ZeRO 3; tokens/s, memory, FLOP utilisation.

    python -P benchmarks/gpu/numerics.py            # on a GPU: about 6 minutes
    python -P benchmarks/gpu/numerics.py --tiny     # the same program on a CPU, small and emulated: for tests

Every case is a process of its own with a time limit; what does not fit the overall limit is told as left out. Model
FLOPs count causal attention and no recomputation: 6 for each parameter that takes part in a token's products, and
6 * layers * heads * (query + value size) * length / 2 for attention. Utilisation is against a large bf16 product
measured on the same device before the cases, not against a data sheet.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[str, tuple[str, int]] = {"fp16": ("fp16", 2), "bf16": ("bf16", 2), "fp8 + ZeRO 3": ("fp8", 3)}
LIMIT_S, CASE_S = 420, 150
STEPS = 12


def config_of(data: Path, dtype: str, stage: int, *, tiny: bool) -> Any:
    """One case as a run's configuration: DeepSeek-V2-Lite's width in four layers on a GPU."""
    from contract import config as configuration

    value: dict[str, Any] = {
        "run": {"steps": STEPS},
        "job": {"ranks_per_node": 1} if tiny else {"ranks_per_node": 1, "gpus_per_node": 1},
        "data": {"path": str(data)},
        "model": {"preset": "tiny", "layers": 2} if tiny else {"preset": "v2-lite", "layers": 4},
        "schedule": {"kind": "constant", "warmup": 0},
        "batch": {
            "global_batch_size": 2 if tiny else 8,
            "micro_batch_size": 1 if tiny else 4,
            "sequence_length": 32 if tiny else 4096,
        },
        "memory": {"loss_chunk_tokens": 0 if tiny else 2048},
        "deepspeed": {"zero_stage": stage},
        "precision": {"dtype": dtype, **({"fp8_emulate": True} if tiny and dtype == "fp8" else {})},
        "optimizer": {"lr": 3e-4},
        "checkpoint": {"interval_steps": 100_000},
    }
    return configuration.parse(value, source="benchmark", bases=[data])


def flops_per_token(model: Any, vocabulary: int, length: int) -> float:
    """Of forward and backward pass together, for the [model] section."""
    heads, query = model.attention_heads, model.qk_nope_head_dim + model.qk_rope_head_dim
    queries = (
        model.q_lora_rank * (model.hidden_size + heads * query)
        if model.q_lora_rank
        else model.hidden_size * heads * query
    )
    attention = (
        queries
        + model.hidden_size * (model.kv_lora_rank + model.qk_rope_head_dim)
        + model.kv_lora_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
        + heads * model.v_head_dim * model.hidden_size
    )
    experts = (
        (model.experts_per_token + model.shared_experts) * 3 * model.hidden_size * model.moe_intermediate_size
    )
    mixture = experts + model.hidden_size * model.routed_experts
    dense = 3 * model.hidden_size * model.intermediate_size
    products = (
        model.layers * attention
        + model.dense_layers * dense
        + (model.layers - model.dense_layers) * mixture
        + vocabulary * model.hidden_size
    )
    return float(6 * products + 6 * model.layers * heads * (query + model.v_head_dim) * length / 2)


def reachable_flops(device: Any) -> float:
    """FLOP/s of a large bf16 product on this device, the best of a few."""
    import torch

    size = 8192 if device.type == "cuda" else 256
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        _wait(device)
        begun = time.perf_counter()
        left @ right
        _wait(device)
        best = min(best, time.perf_counter() - begun)
    return float(2 * size**3 / best)


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def run_case(name: str, data: Path, *, tiny: bool) -> dict[str, Any]:
    """In the case's own process."""
    dtype, stage = CASES[name]
    config = config_of(data, dtype, stage, tiny=tiny)
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if tiny else "cuda")
    importlib.import_module("trainer.preload")  # first: quiet imports, no device claimed
    import torch

    from contract.layout import RunDir
    from contract.page import WorkerPage
    from trainer import assembly
    from trainer.batch.clock import NoClock
    from trainer.distributed import Ranks
    from trainer.stop import install
    from trainer.worker import worker_from_environment

    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(path=Path(folder))
        worker = worker_from_environment(os.environ, run.path)
        given = assembly.plan(config, run, ranks=1)
        ranks = Ranks(worker, accelerator="cpu" if tiny else "cuda", timeout_s=60, patience_s=60)
        reachable = reachable_flops(ranks.device)
        page = WorkerPage.create(run.path / "page", rank=0)
        training, progress = assembly.assemble(given, worker, ranks, page, install())
        seconds, losses, tokens = [], [], 0
        for _ in range(STEPS):
            _wait(ranks.device)
            begun = time.perf_counter()
            window, _, outcome = training.step(progress, NoClock())
            training.settle(outcome, window.taken, progress)
            _wait(ranks.device)
            seconds.append(time.perf_counter() - begun)
            progress, tokens = progress.after(window.taken, outcome.tokens), outcome.tokens
            losses.append(outcome.loss)
        speed = tokens / statistics.median(seconds[STEPS // 3 :])
        cuda = ranks.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
        flops = flops_per_token(config.model, given.shape.vocab_size, config.batch.sequence_length)
        return {
            "case": name,
            "tokens_per_s": speed,
            "peak_gib": peak,
            "utilisation": speed * flops / reachable,
            "loss": losses[-1],
        }


def child(name: str, data: Path, limit: float, *, tiny: bool) -> dict[str, Any]:
    """One case, or why there is none."""
    command = [
        sys.executable,
        "-P",
        __file__,
        "--case",
        name,
        "--data",
        str(data),
        *(["--tiny"] if tiny else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1" if tiny else "8"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"case": name, "left_out": f"not done after {limit:.0f} s"}
    if done.returncode:
        return {"case": name, "left_out": (done.stderr.strip().splitlines() or ["no word"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown; ratios are against fp16, else against bf16."""
    done = [row for row in rows if "left_out" not in row]
    lines = [
        "| format | tokens/s | against the first | peak memory | FLOP utilisation | last loss |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "left_out" in row:
            lines.append(f"| {row['case']} | left out: {row['left_out']} | | | | |")
            continue
        ratio = row["tokens_per_s"] / done[0]["tokens_per_s"]
        memory = "–" if row["peak_gib"] is None else f"{row['peak_gib']:.1f} GiB"
        lines.append(
            f"| {row['case']} | {row['tokens_per_s']:,.0f} | {ratio:.2f} | {memory} | {row['utilisation']:.1%} "
            f"| {row['loss']:.3f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print the table; with --case: be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--case", choices=sorted(CASES))
    parser.add_argument("--data", type=Path)
    given = parser.parse_args(arguments)
    if given.case:
        found = run_case(given.case, given.data, tiny=given.tiny)
        print("\n" + json.dumps(found), flush=True)
        os._exit(0)  # no orderly end of process groups that nobody shares
    from trainer.data.prepare import Recipe, prepare

    deadline, rows = time.monotonic() + LIMIT_S, []
    with tempfile.TemporaryDirectory() as folder:
        prepare([ROOT / "trainer"], Path(folder) / "tokens", Recipe(vocab_size=0, validation_share=0.1))
        for name in CASES:
            limit = min(CASE_S, deadline - time.monotonic())
            rows.append(
                child(name, Path(folder) / "tokens", limit, tiny=given.tiny)
                if limit > 0
                else {"case": name, "left_out": "the time was up"}
            )
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    return 0 if any("left_out" not in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
