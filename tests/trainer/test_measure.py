"""Bandwidth of collectives beside a hand-written loop, and sample reads, by the commands that people type."""

import os
import subprocess
import sys
import textwrap

import pytest
from typer.testing import CliRunner

from contract import staged
from contract.sources import FolderSource
from slurm.commands_bench import app
from slurm.node.stage import Stager
from slurm.ranks import RanksError, as_task, run
from tests.supervisor.schemas import check
from trainer.data.prepare import Recipe, prepare

SIZE = 8 << 20
BY_HAND = textwrap.dedent(f"""
    import time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    data = torch.zeros({SIZE} // 4)
    for _ in range(3):
        dist.all_reduce(data)
    dist.barrier()
    best = 1e9
    for _ in range(3):
        begun = time.perf_counter()
        for _ in range(8):
            dist.all_reduce(data)
        best = min(best, (time.perf_counter() - begun) / 8)
    print(best)
    dist.destroy_process_group()
""")


def by_hand(port, processes):
    ranks = []
    for rank in range(2):
        environment = os.environ | {
            "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-P", "-c", BY_HAND]
        ranks.append(processes.start(command, env=environment, stdout=subprocess.PIPE, text=True))
    return float(ranks[0].communicate(timeout=120)[0].split()[-1]), ranks[1].communicate(timeout=120)


@pytest.mark.train
def test_bench_comm_says_what_a_loop_by_hand_says(processes):
    told = CliRunner().invoke(app, ["comm", "--sizes", "8M,64K", "--seconds", "0.5", "--json"])
    assert told.exit_code == 0, told.output
    found = check("bench-comm", told.stdout)
    rows = {(row["collective"], row["bytes"]): row for row in found["rows"]}
    assert len(rows) == 8
    for (name, size), row in rows.items():
        assert row["algorithm_bytes_per_s"] == pytest.approx(size / row["seconds"])
        factor = 1.0 if name == "all-reduce" else 0.5  # 2(n-1)/n and (n-1)/n of two ranks
        assert row["bus_bytes_per_s"] == pytest.approx(factor * row["algorithm_bytes_per_s"])
        assert row["fastest_rank_s"] <= row["seconds"] <= row["slowest_rank_s"]
    ours = rows["all-reduce", SIZE]["seconds"]
    theirs, _ = by_hand("29544", processes)
    print(f"all-reduce of 8 MiB: {ours * 1e3:.2f} ms, by hand {theirs * 1e3:.2f} ms")
    assert 0.2 < ours / theirs < 5, "a busy machine; an enqueue without a wait would be off by hundreds"


@pytest.mark.train
def test_bench_pairs_says_what_it_found_of_the_nodes():
    told = CliRunner().invoke(app, ["pairs", "--json"])
    found = check("bench-pairs", told.stdout)
    assert len(found["nodes"]) == 2, told.output
    assert told.exit_code == bool(found["bad"] or found["doubtful"])


@pytest.mark.train
@pytest.mark.slow
def test_a_rank_that_fails_is_told():
    with pytest.raises(RanksError, match="rank 0 ended with 1"):
        run("trainer.measure.collectives", ["no-such-backend", "1", "all-reduce", "64"], ranks=2, limit_s=120)


@pytest.mark.quick
def test_what_a_task_of_srun_is():
    assert as_task({}) is None
    assert as_task({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "n1"}) is None
    step = {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_NODELIST": "n[3-6]",
        "SLURM_JOB_ID": "17",
    }
    assert as_task(step) == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n3", "MASTER_PORT": "29417",
    }  # fmt: skip
    assert as_task({"RANK": "0", "WORLD_SIZE": "2"}) == {}


def test_bench_read_compares_source_and_copies(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in "abc":
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name} text\n" * 3000)
    data, stage = tmp_path / "data", tmp_path / "nvme"
    prepare([tmp_path / "texts"], data, Recipe(vocab_size=0, validation_share=0.3, shard_tokens=5000))
    stage.mkdir()
    assert Stager(source=FolderSource(data), stage=stage, order=staged.shards_of).turn().complete
    line = ["read", str(data), "--stage", str(stage), "--length", "64", "--samples", "50", "--json"]
    told = CliRunner().invoke(app, line)
    assert told.exit_code == 0, told.output
    found = check("bench-read", told.stdout)
    assert found["staged_share"] == 1.0
    for place in ("source", "staged"):
        assert 0 < found[place]["p50_s"] <= found[place]["p99_s"] <= found[place]["max_s"]
    told = CliRunner().invoke(app, ["read", str(tmp_path / "none")])
    assert told.exit_code == 1
