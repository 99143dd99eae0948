"""Tokens per second when one rank is slower: every rank the same samples, against samples by measured speed.

    python -P benchmarks/balance.py                   # rewrites the table in docs/benchmarks.md
    python -P benchmarks/balance.py --ranks 2 --factors 2 --no-write

Each rank gets a fixed share of a core from outside (stopped and continued every 40 ms, as cpulimit does), the last one
a share smaller by the factor. Both arms train the same model on the same data; only [batch] adaptive differs. The
ideal is what equal waiting for nobody would give: the mean of all speeds over the smallest.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # the throttle is the tests', which nobody installs

from benchmarks.document import put
from contract import config as configuration
from tests.trainer.batch.throttle import slowed

HERE = Path(__file__).resolve().parents[1]
STEPS, LAST = 60, 20  # the last ones are measured: by then the plan has settled
CORE_SHARE = 0.6  # of each rank; three of them fit two cores
PER_RANK = 24  # samples of one rank in a step, in three micro-steps


@dataclass(frozen=True, kw_only=True)
class Row:
    """One slow-down: tokens per second of both arms, the step of the last change, the samples of each rank then."""

    ranks: int
    factor: float
    fixed: float
    balanced: float
    settled: int
    plan: str

    @property
    def ideal(self) -> float:
        return (self.ranks - 1 + 1 / self.factor) / self.ranks * self.factor


def trained(adaptive: str, ranks: int, factor: float, directory: Path) -> list[dict[str, object]]:
    """The metrics of one run, step by step."""
    settings = [
        f"run.steps={STEPS}",
        f"job.ranks_per_node={ranks}",
        f"batch.adaptive={adaptive}",
        f"batch.global_batch_size={PER_RANK * ranks}",
        f"batch.micro_batch_size={PER_RANK // 3}",
        "batch.cooldown_steps=3",
        "deepspeed.zero_stage=1",
        "data.evaluate_interval_steps=0",
        f"checkpoint.interval_steps={STEPS}",
    ]
    config = configuration.load(HERE / "configs" / "tiny-local.toml", settings)
    recipe = directory / f"{adaptive}.toml"
    recipe.write_text(configuration.dump(config))
    run = directory / adaptive
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "trainer", "--config", str(recipe), "--run-dir", str(run)],
            env={
                **os.environ,
                **{k: str(v) for k, v in common.items()},
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=HERE,
        )
        for rank in range(ranks)
    ]
    with ExitStack() as stack:
        for rank, worker in enumerate(workers):
            share = CORE_SHARE / (factor if rank == ranks - 1 else 1)
            stack.enter_context(slowed(worker.pid, 1 / share))
        codes = [worker.wait(timeout=600) for worker in workers]
    if any(codes):
        sys.exit(f"{adaptive} with {ranks} ranks ended with {codes}")
    (metrics,) = (run / "metrics").glob("*.jsonl")
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def compared(ranks: int, factor: float) -> Row:
    """Both arms, one after the other."""
    with tempfile.TemporaryDirectory(prefix="ciuic-balance-") as directory:
        fixed = trained("off", ranks, factor, Path(directory))
        balanced = trained("balance", ranks, factor, Path(directory))
    changes = [row for row in balanced if "batch_change" in row]
    last = changes[-1] if changes else None
    return Row(
        ranks=ranks,
        factor=factor,
        fixed=speed(fixed),
        balanced=speed(balanced),
        settled=int(str(last["step"])) if last else 0,
        plan=str(last["batch_change"]).rsplit(" of ", 1)[1].removesuffix(" a rank")
        if last
        else "as configured",
    )


def speed(rows: list[dict[str, object]]) -> float:
    """Median tokens per second of the last steps."""
    return statistics.median(float(str(row["tokens_per_s"])) for row in rows[-LAST:])


def measuring_cost() -> float:
    """Seconds of the controller and the exchange of figures, per step of two ranks whose plan never changes."""
    code = """
import time, torch, trainer.preload, os, sys
from pathlib import Path
from contract.config.batch import Batch
from trainer.batch.control import BatchControl
from trainer.batch.measure import Phases
from trainer.distributed import Ranks
from trainer.worker import worker_from_environment
ranks = Ranks(worker_from_environment(os.environ, Path(sys.argv[1])), accelerator="cpu", timeout_s=60, patience_s=60)
control = BatchControl(Batch(adaptive="balance"), ranks, Phases(torch.device("cpu")), lambda size: None)
for number in range(1200):
    if number == 200:
        began = time.perf_counter()
    control.observe(worked_s=0.8, forward_s=0.4, seconds=1.0)
if ranks.rank == 0:
    print((time.perf_counter() - began) / 1000)
"""
    with socket.socket() as free, tempfile.TemporaryDirectory() as directory:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        workers = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", code, directory],
                env={**os.environ, **both, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(2)
        ]
        said = [worker.communicate(timeout=120)[0] for worker in workers]
    return float(said[0].split()[-1])


def table(rows: list[Row], cost: float) -> str:
    """As in the document."""
    lines = [
        "| ranks | one rank slower by | every rank the same | by speed | gain | ideal gain | settled at step | samples a micro-step then |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.ranks} | {row.factor:g} | {row.fixed:,.0f} tokens/s | {row.balanced:,.0f} tokens/s | "
        f"{row.balanced / row.fixed:.2f} | {row.ideal:.2f} | {row.settled} | {row.plan} |"
        for row in rows
    ]
    lines += ["", f"Measuring and deciding cost {cost * 1e3:.2f} ms a step with two ranks on this machine."]
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--factors", type=float, nargs="*", default=[1.5, 2.0, 4.0])
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    rows = [compared(ranks, factor) for ranks in given.ranks for factor in given.factors]
    text = table(rows, measuring_cost())
    print(text)
    if given.no_write:
        return
    put("balance", text)


if __name__ == "__main__":
    main()
