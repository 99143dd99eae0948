"""What the training loop costs beside a bare DeepSpeed loop and Hugging Face's Trainer: same model, data, batch, JSON.

    python -P benchmarks/training.py [--tries 3] [--steps 40]      # writes its table into docs/benchmarks.md

Each arm is a process of its own with one thread; arms alternate, forwards and backwards. Overheads are
processor time of a null model (300 tiny parameters, next to no work), by difference from the bare loop of the same
run: a ratio of real steps would drown in what else the machine does. What else it does can only add processor time
(caches that others emptied), so the cheapest quarter of the steps and the best of the tries stand for the loop.
"""

import argparse
import itertools
import json
import os
import resource
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
ARMS = ("bare", "ciuic", "trainer")
NAMES = {"bare": "bare DeepSpeed loop", "ciuic": "ciuic", "trainer": "Hugging Face Trainer"}
MICRO_STEPS, SAMPLES, LENGTH = 4, 2, 64


def config_of(data: Path, steps: int, case: str) -> Any:
    """The run's configuration, which every arm follows."""
    from contract import config as configuration

    real = case == "real"
    value = {
        "run": {"steps": steps},
        "job": {"ranks_per_node": 1},
        "data": {"path": str(data)},
        "model": {"preset": "tiny"},
        "schedule": {"kind": "constant", "warmup": 0},
        "batch": {
            "global_batch_size": MICRO_STEPS * (SAMPLES if real else 1),
            "micro_batch_size": SAMPLES if real else 1,
            "sequence_length": LENGTH if real else 4,
        },
        "deepspeed": {"zero_stage": 1},
        "precision": {"dtype": "fp32"},
        "optimizer": {"weight_decay": 0.0},  # Trainer makes groups of its own, and decays others
        "checkpoint": {"interval_steps": 100_000},
    }
    return configuration.parse(value, source="benchmark", bases=[data])


def null_model(config: Any) -> Any:
    """Parameters without work: what is left is the loop."""
    import torch

    class Null(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(4)) for _ in range(300))
            self.lm_head = torch.nn.Linear(4, config.vocab_size, bias=False)
            self.config = config

        def forward(self, input_ids: Any, use_cache: bool = False) -> Any:  # noqa: ARG002
            state = torch.stack(list(self.parts)).sum(dim=0)
            hidden = state.expand(*input_ids.shape, 4)
            return type("Output", (), {"logits": self.lm_head(hidden)})()

    torch.manual_seed(0)
    config._experts_implementation_internal = "grouped_mm"
    return Null()


class Marks:
    """Processor and wall time after each optimizer step, and its loss."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float]] = []

    def mark(self, loss: float) -> None:
        """A step is over."""
        self.rows.append((time.process_time(), time.perf_counter(), loss))

    def found(self, tokens: int) -> dict[str, Any]:
        """Over the last three quarters: of processor time the lower quartile, of wall time the median."""
        rows = self.rows[len(self.rows) // 4 :]
        pairs = list(itertools.pairwise(rows))
        return {
            "cpu_ms": statistics.quantiles((1000 * (late[0] - early[0]) for early, late in pairs), n=4)[0],
            "tokens_per_s": tokens / statistics.median(late[1] - early[1] for early, late in pairs),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "losses": [row[2] for row in self.rows[:8]],
        }


def run_arm(arm: str, case: str, data: Path, steps: int) -> dict[str, Any]:
    """In the arm's own process."""
    from trainer import preload  # noqa: F401 - first: quiet imports, no device claimed

    config, marks = config_of(data, steps, case), Marks()
    {"bare": bare, "ciuic": ours, "trainer": hugging_face}[arm](config, case, marks)
    return marks.found(config.batch.global_batch_size * config.batch.sequence_length)


def ours(config: Any, case: str, marks: Marks) -> None:
    """The trainer as a run starts it; a step ends when its line of metrics is written."""
    from contract.layout import RunDir
    from contract.page import WorkerPage
    from trainer import assembly
    from trainer.distributed import Ranks
    from trainer.metrics import Metrics
    from trainer.stop import install
    from trainer.worker import worker_from_environment

    if case == "null":
        assembly.build_model = lambda shape, **_: null_model(shape)
    write = Metrics.write

    def marked(self: Any, progress: Any, outcome: Any, *rest: Any, **named: Any) -> None:
        write(self, progress, outcome, *rest, **named)
        marks.mark(outcome.loss)

    Metrics.write = marked  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(path=Path(folder))
        worker = worker_from_environment(os.environ, run.path)
        given = assembly.plan(config, run, ranks=1)
        ranks = Ranks(worker, accelerator="cpu", timeout_s=60, patience_s=60)
        page = WorkerPage.create(run.path / "page", rank=0)
        training, progress = assembly.assemble(given, worker, ranks, page, install())
        with training.metrics:
            training.train(progress)


def parts(config: Any, case: str) -> tuple[Any, Any, Any]:
    """(model, optimizer, batches) as our trainer makes them."""
    import torch

    from trainer.data.batches import Batches
    from trainer.data.corpora import open_split, order_of
    from trainer.groups import Layout, for_optimizer, groups_of
    from trainer.model import architecture, build_model

    reader = open_split(config, "train", None)
    shape = architecture(
        config.model, vocab_size=reader.vocab_size, sequence_length=config.batch.sequence_length
    )
    model = null_model(shape) if case == "null" else build_model(shape, seed=config.run.seed)
    wanted = config.optimizer
    groups = for_optimizer(
        model, groups_of(model, config.model.layers, Layout.BY_LAYER), weight_decay=wanted.weight_decay
    )
    optimizer = torch.optim.AdamW(
        groups, lr=wanted.lr, betas=(wanted.beta1, wanted.beta2), eps=wanted.eps, fused=True
    )
    return model, optimizer, Batches(reader, order_of(config, reader, ()), rank=0)


def summed(model: Any, batch: Any) -> Any:
    """The loss of all arms."""
    import torch

    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
    )


def bare(config: Any, case: str, marks: Marks) -> None:
    """What anybody would write with DeepSpeed alone: no checks, no metrics, one read of the loss a step."""
    import deepspeed
    import torch.distributed as dist

    from trainer.batch.plan import configured
    from trainer.engine import deepspeed_config

    model, optimizer, batches = parts(config, case)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=deepspeed_config(config, ranks=1)
    )
    cut = configured(config.batch, 1)
    tokens = config.batch.global_batch_size * config.batch.sequence_length
    for step in range(config.run.steps):
        window, total = batches.window(step * cut.global_batch, cut), 0.0
        for batch in window.micro_batches:
            loss = summed(engine, batch)
            engine.backward(loss / tokens, scale_wrt_gas=False)
            total = total + loss.detach()
        engine.step()
        marks.mark(float(total) / tokens)


def hugging_face(config: Any, case: str, marks: Marks) -> None:
    """Trainer with the same JSON, its own defaults for everything else, and a line of log a step as ours has."""
    import deepspeed
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from trainer.batch.plan import configured
    from trainer.engine import deepspeed_config

    model, optimizer, batches = parts(config, case)
    settings = deepspeed_config(config, ranks=1)
    settings = {key: value for key, value in settings.items() if key != "managed_gradient_accumulation"}
    cut = configured(config.batch, 1)

    class Rows(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            for step in range(config.run.steps):
                for batch in batches.window(step * cut.global_batch, cut).micro_batches:
                    for row in batch:
                        yield {"input_ids": row, "labels": row}

    class Plain(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            batch = inputs["input_ids"]
            return summed(model, batch) / (batch.shape[0] * (batch.shape[1] - 1))

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            torch.set_num_threads(1)  # accelerate sets it anew

        def on_log(self, _arguments: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                marks.mark(logs["loss"])

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=config.batch.micro_batch_size,
            gradient_accumulation_steps=MICRO_STEPS,
            max_steps=config.run.steps,
            lr_scheduler_type="constant",
            learning_rate=config.optimizer.lr,
            weight_decay=config.optimizer.weight_decay,
            max_grad_norm=config.optimizer.gradient_clipping,
            deepspeed=settings,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        trainer = Plain(
            model=model,
            args=arguments,
            train_dataset=Rows(),
            optimizers=(optimizer, None),
            callbacks=[Watch()],
        )
        trainer.model_accepts_loss_kwargs = False  # our loss is a mean; it must divide by the micro-batches
        trainer.train()
        if not isinstance(trainer.model_wrapped, deepspeed.DeepSpeedEngine):
            raise SystemExit("this Trainer has ignored the DeepSpeed JSON: nothing to compare")


def child(arm: str, case: str, data: Path, steps: int) -> dict[str, Any]:
    """One arm, measured in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-P", __file__, "--arm", arm, "--case", case, "--data", str(data)]
    done = subprocess.run(
        [*command, "--steps", str(steps)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{arm} ({case}) ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(arms: Sequence[str], data: Path, tries: int, steps: int) -> dict[str, dict[str, list[Any]]]:
    """All arms, forwards and backwards in turn; refuses arms that did not train alike."""
    found: dict[str, dict[str, list[Any]]] = {case: {arm: [] for arm in arms} for case in ("null", "real")}
    for case, kept in found.items():
        for number in range(tries):
            for arm in arms if number % 2 == 0 else reversed(arms):
                kept[arm].append(child(arm, case, data, steps * (4 if case == "null" else 1)))
                print(
                    case, arm, {key: its for key, its in kept[arm][-1].items() if key != "losses"}, flush=True
                )
        for arm in arms:
            pairs = zip(kept[arm][0]["losses"], kept["bare"][0]["losses"], strict=True)
            # Routers choose: in the real model the last bits of a sum grow to some thousandths within eight steps.
            near = 1e-3 if case == "null" else 1e-2
            if any(abs(mine - theirs) > near * theirs for mine, theirs in pairs):
                raise SystemExit(
                    f"{case}: {arm} has other losses than the bare loop: {kept[arm][0]['losses']}"
                )
    return found


def table(found: dict[str, dict[str, list[Any]]], command: str) -> str:
    """Markdown."""
    lines = [
        (
            f"`{command}` on {os.cpu_count()} cores: the `tiny` preset in float32, ZeRO 1, one rank with one thread, "
            f"{MICRO_STEPS} micro-batches a step; medians over {len(found['null']['bare'])} tries; the overhead is "
            "the difference from the bare loop in processor time with the null model, each the best of its tries."
        ),
        "",
        "| loop | overhead for each micro-batch | tokens/s against bare | processor time of a step against bare | peak memory |",
        "|---|---|---|---|---|",
    ]
    for arm, rows in found["real"].items():
        mine, base = (min(item["cpu_ms"] for item in found["null"][name]) for name in (arm, "bare"))
        overhead = (mine - base) / MICRO_STEPS
        pairs = list(zip(rows, found["real"]["bare"], strict=True))
        speed = statistics.median(mine["tokens_per_s"] / base["tokens_per_s"] for mine, base in pairs)
        work = statistics.median(mine["cpu_ms"] / base["cpu_ms"] for mine, base in pairs)
        peak = statistics.median(mine["peak_mb"] for mine in rows)
        lines.append(f"| {NAMES[arm]} | {overhead:+.2f} ms | {speed:.2f} | {work:.2f} | {peak:.0f} MB |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; with --arm: be one arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--case", choices=("null", "real"), default="real")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--dry", action="store_true", help="print the table, leave docs/benchmarks.md alone")
    given = parser.parse_args(arguments)
    if given.arm:
        found = run_arm(given.arm, given.case, given.data, given.steps)
        print("\n" + json.dumps(found), flush=True)
        os._exit(0)  # no orderly end of process groups that nobody shares
    from trainer.data.prepare import Recipe, prepare

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tokens"
        prepare([ROOT / "trainer"], data, Recipe(vocab_size=0, validation_share=0.1))
        text = table(
            measure(ARMS, data, given.tries, given.steps),
            f"python -P benchmarks/training.py --tries {given.tries} --steps {given.steps}",
        )
    print(text)
    if not given.dry:
        put("training", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
