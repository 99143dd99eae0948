"""The trainer on one GPU: beside a bare DeepSpeed loop, Hugging Face's Trainer and the eager expert loop, and by format.

    python -P benchmarks/gpu/numerics.py            # on a GPU: under 8 minutes
    python -P benchmarks/gpu/numerics.py --tiny     # the same program on a CPU, small and emulated: for tests

Tables of tokens/s, memory, FLOP utilisation, and the ratios to reach. Every case is a process of its own with a time
limit, forked from one that has imported everything; what does not fit the overall limit is told as left out. The bare
loop and ours take turns on one engine, four steps each (A B B A): only the loop differs. Model FLOPs count causal
attention and no recomputation: 6 for each parameter that takes part in a token's products, and 6 * layers * heads *
(query + value size) * length / 2 for attention. Utilisation is against a large bf16 product measured on the same
device, not against a data sheet.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S, CASE_S = 440, 150
BARE = "bare DeepSpeed loop"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One process. `run` names what it does, see `run_case`."""

    run: str = "ciuic"
    dense: bool = False
    dtype: str = "bf16"
    stage: int = 2
    tuned: bool = False
    offload: bool = False
    steps: int = 12


# In the order of their worth: the last ones are left out when the time is up.
CASES: dict[str, Case] = {
    "ciuic": Case(run="both loops", dense=True, steps=4),
    "Hugging Face Trainer, its defaults": Case(run="trainer", dense=True),
    "bf16": Case(),
    "bf16, eager experts": Case(run="eager", steps=5),
    "ciuic, tuned": Case(dense=True, tuned=True),
    "fp8 + ZeRO 3": Case(dtype="fp8", stage=3),
    "fp16": Case(dtype="fp16"),
    "bf16, optimizer offloaded": Case(offload=True, steps=5),
}
# (which, against which, the ratio of tokens/s to reach)
TO_REACH = (
    ("ciuic", BARE, 0.98),
    ("ciuic, tuned", "Hugging Face Trainer, its defaults", 1.15),
    ("bf16", "bf16, eager experts", 4.0),
)


def config_of(data: Path, case: Case, *, tiny: bool) -> Any:
    """One case as a run's configuration: on a GPU DeepSeek-V2-Lite's width, four layers with experts or twelve without."""
    from contract import config as configuration

    layers = (2 if tiny else 12) if case.dense else (2 if tiny else 4)
    model: dict[str, Any] = {"preset": "tiny" if tiny else "v2-lite", "layers": layers}
    value: dict[str, Any] = {
        "run": {"steps": 1000},
        "job": {"ranks_per_node": 1} if tiny else {"ranks_per_node": 1, "gpus_per_node": 1},
        "data": {"path": str(data)},
        "model": model
        | ({"dense_layers": layers} if case.dense else {})
        | ({"compile_layers": True} if case.tuned and not tiny else {}),
        "schedule": {"kind": "constant", "warmup": 0},
        "batch": {
            "global_batch_size": 2 if tiny else 8,
            "micro_batch_size": 1 if tiny else 4,
            "sequence_length": 32 if tiny else 4096,
        },
        # What Trainer has not by default: only the tuned case uses it there.
        "memory": {"loss_chunk_tokens": 2048 if (case.tuned or not case.dense) and not tiny else 0},
        "deepspeed": {"zero_stage": case.stage, "offload_optimizer": case.offload},
        "precision": {
            "dtype": case.dtype,
            **({"fp8_emulate": True} if tiny and case.dtype == "fp8" else {}),
        },
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


class Bench:
    """What a case's process has: the run, its ranks, and the figures of a row."""

    def __init__(self, case: Case, data: Path, folder: Path, *, tiny: bool) -> None:
        from contract.layout import RunDir
        from trainer import assembly
        from trainer.distributed import Ranks
        from trainer.worker import worker_from_environment

        self.case, self.config = case, config_of(data, case, tiny=tiny)
        self.steps = min(3, case.steps) if tiny else case.steps
        self.run = RunDir(path=folder)
        self.worker = worker_from_environment(os.environ, self.run.path)
        self.given = assembly.plan(self.config, self.run, ranks=1)
        self.ranks = Ranks(self.worker, accelerator="cpu" if tiny else "cuda", timeout_s=60, patience_s=60)
        self.device = self.ranks.device
        self.reachable = reachable_flops(self.device)
        batch = self.config.batch
        self.tokens = batch.global_batch_size * batch.sequence_length

    def row(self, name: str, seconds: Sequence[float], loss: float) -> dict[str, Any]:
        """Of these steps, the first third of which warmed up."""
        import torch

        speed = self.tokens / statistics.median(seconds[len(seconds) // 3 :])
        cuda = self.device.type == "cuda"
        length = self.config.batch.sequence_length
        flops = flops_per_token(self.config.model, self.given.shape.vocab_size, length)
        return {
            "case": name,
            "tokens_per_s": speed,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
            "utilisation": speed * flops / self.reachable,
            "loss": loss,
        }

    def timed(self, step: Callable[[], float], count: int) -> tuple[list[float], float]:
        """Seconds of each step, and the last loss."""
        seconds, loss = [], 0.0
        for _ in range(count):
            _wait(self.device)
            begun = time.perf_counter()
            loss = step()
            _wait(self.device)
            seconds.append(time.perf_counter() - begun)
        return seconds, loss

    def batches(self) -> tuple[Any, Any]:
        """The reader of the run's samples, and how a step is cut."""
        from trainer.batch.plan import configured
        from trainer.data.batches import Batches
        from trainer.data.corpora import order_of

        reader = self.given.reader
        return Batches(reader, order_of(self.config, reader, ()), rank=0), configured(self.config.batch, 1)

    def ours(self) -> tuple[Any, Callable[[], float]]:
        """(engine, one step as a run does it)."""
        from contract.page import WorkerPage
        from trainer import assembly
        from trainer.batch.clock import NoClock
        from trainer.stop import install

        page = WorkerPage.create(self.run.path / "page", rank=0)
        training, progress = assembly.assemble(self.given, self.worker, self.ranks, page, install())

        def step() -> float:
            nonlocal progress
            window, _, outcome = training.step(progress, NoClock())
            training.settle(outcome, window.taken, progress)
            progress = progress.after(window.taken, outcome.tokens)
            return float(outcome.loss)

        return training.engine, step

    def bare(self, engine: Any) -> Callable[[], float]:
        """One step as anybody would write it with DeepSpeed alone: no checks, one read of the loss."""
        from trainer.step import summed_loss

        batches, cut = self.batches()
        position = 0

        def step() -> float:
            nonlocal position
            window, total = batches.window(position, cut), 0.0
            position += cut.global_batch
            for batch in window.micro_batches:
                loss = summed_loss(engine, batch.to(self.device, non_blocking=True))
                engine.backward(loss / self.tokens, scale_wrt_gas=False)
                total = total + loss.detach()
            engine.step()
            return float(total) / self.tokens

        return step


def one_loop(name: str, bench: Bench) -> list[dict[str, Any]]:
    """Our loop alone."""
    _, step = bench.ours()
    return [bench.row(name, *bench.timed(step, bench.steps))]


def both_loops(name: str, bench: Bench) -> list[dict[str, Any]]:
    """Ours and the bare one, in turns on the same engine."""
    engine, ours = bench.ours()
    steps = {name: ours, BARE: bench.bare(engine)}
    found: dict[str, list[float]] = {name: [], BARE: []}
    losses: dict[str, float] = {}
    for which in (name, BARE, BARE, name):  # warm, both
        bench.timed(steps[which], 1)
    for which in (name, BARE, BARE, name, name, BARE, BARE, name):
        seconds, losses[which] = bench.timed(steps[which], bench.steps)
        found[which] += seconds
    return [bench.row(which, found[which], losses[which]) for which in (name, BARE)]


def eager(name: str, bench: Bench) -> list[dict[str, Any]]:
    """The bare loop with each expert asked for its tokens, one after the other."""
    from trainer.engine import build_engine
    from trainer.groups import Layout
    from trainer.levers import thrifty
    from trainer.model import build_model
    from trainer.norms import Watch

    model: Any = thrifty(build_model(bench.given.shape, seed=0), bench.config.memory)
    model.set_experts_implementation("eager")
    engine = build_engine(bench.config, bench.given.settings, model, Layout.BY_LAYER, Watch())
    return [bench.row(name, *bench.timed(bench.bare(engine), bench.steps))]


def hugging_face(name: str, bench: Bench) -> list[dict[str, Any]]:
    """Trainer with a DeepSpeed JSON that says what it must, and its defaults for everything else."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from trainer.model import build_model

    batches, cut = bench.batches()
    batch, cpu = bench.config.batch, bench.device.type == "cpu"
    accumulation = batch.global_batch_size // batch.micro_batch_size
    settings = {
        "train_micro_batch_size_per_gpu": batch.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": bench.case.stage},
        "zero_allow_untested_optimizer": True,
    }
    seconds: list[float] = []
    losses: list[float] = []

    class Rows(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            for step in range(bench.steps):
                for some in batches.window(step * cut.global_batch, cut).micro_batches:
                    for row in some:
                        yield {"input_ids": row[:-1], "labels": row[:-1]}

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            _wait(bench.device)
            seconds.append(-time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            _wait(bench.device)
            seconds[-1] += time.perf_counter()

        def on_log(self, _arguments: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            losses.extend([logs["train_loss"]] if "train_loss" in logs else [])

    arguments = TrainingArguments(
        output_dir=str(bench.run.path / "trainer"),
        per_device_train_batch_size=batch.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=bench.steps,
        learning_rate=3e-4,
        bf16=True,
        use_cpu=cpu,
        deepspeed=settings,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=build_model(bench.given.shape, seed=0),
        args=arguments,
        train_dataset=Rows(),
        callbacks=[Watch()],
    )
    trainer.train()
    return [bench.row(name, seconds, losses[-1])]


RUNS: dict[str, Callable[[str, Bench], list[dict[str, Any]]]] = {
    "ciuic": one_loop,
    "both loops": both_loops,
    "eager": eager,
    "trainer": hugging_face,
}


def run_case(name: str, data: Path, answer: Path, *, tiny: bool) -> None:
    """In the case's own process: rows, or the last line of what went wrong, into `answer`."""
    rows: list[dict[str, Any]]
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = RUNS[CASES[name].run](name, Bench(CASES[name], data, Path(folder), tiny=tiny))
    except BaseException as error:  # also an exit: the table says why there is no row
        traceback.print_exc()
        rows = [{"case": name, "left_out": str(error).strip().splitlines()[-1][:200] or repr(error)}]
    answer.write_text(json.dumps(rows))
    os._exit(0)  # no orderly end of process groups that nobody shares


def child(name: str, data: Path, limit: float, *, tiny: bool) -> list[dict[str, Any]]:
    """One case, or why there is none."""
    answer = data.parent / f"{name}.json"
    process = multiprocessing.get_context("fork").Process(
        target=run_case, args=(name, data, answer), kwargs={"tiny": tiny}
    )
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return [{"case": name, "left_out": f"not done after {limit:.0f} s"}]
    if not answer.exists():
        return [{"case": name, "left_out": f"ended with {process.exitcode}"}]
    found: list[dict[str, Any]] = json.loads(answer.read_text())
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| case | tokens/s | peak memory | FLOP utilisation | last loss |", "|---|---|---|---|---|"]
    for row in rows:
        if "left_out" in row:
            lines.append(f"| {row['case']} | left out: {row['left_out']} | | | |")
            continue
        memory = "–" if row["peak_gib"] is None else f"{row['peak_gib']:.1f} GiB"
        lines.append(
            f"| {row['case']} | {row['tokens_per_s']:,.0f} | {memory} | {row['utilisation']:.1%} | {row['loss']:.3f} |"
        )
    return "\n".join(lines)


def ratios(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: what is to be reached, and every format against fp16."""
    speed = {row["case"]: row["tokens_per_s"] for row in rows if "left_out" not in row}
    lines = ["| ratio of tokens/s | measured | to reach |", "|---|---|---|"]
    formats = [(name, "fp16", None) for name in ("bf16", "fp8 + ZeRO 3")]
    offloaded = [("bf16, optimizer offloaded", "bf16", None)]
    for mine, theirs, wanted in (*TO_REACH, *formats, *offloaded):
        known = mine in speed and theirs in speed
        measured = f"{speed[mine] / speed[theirs]:.3f}" if known else "–"
        lines.append(f"| {mine} / {theirs} | {measured} | {wanted or '–'} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only this one; repeatable")
    given = parser.parse_args(arguments)
    os.environ["DS_ACCELERATOR"] = "cpu" if given.tiny else "cuda"
    os.environ["OMP_NUM_THREADS"] = "1" if given.tiny else "8"
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "0", "HF_HUB_OFFLINE": "1"}
    importlib.import_module("trainer.preload")  # quiet imports, no device claimed: cases are forked from here
    from trainer.data.prepare import Recipe, prepare

    begun, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tokens"
        prepare([ROOT / "trainer"], data, Recipe(vocab_size=0, validation_share=0.1))
        for name in given.case or CASES:
            limit = min(CASE_S, begun + LIMIT_S - time.monotonic())
            found = (
                child(name, data, limit, tiny=given.tiny)
                if limit > 0
                else [{"case": name, "left_out": "the time was up"}]
            )
            rows += found
            print(json.dumps(found), flush=True)
    print(f"{table(rows)}\n\n{ratios(rows)}")
    return 0 if any("left_out" not in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
