"""A start whose checkpoint is missing or damaged here brings it back from the mirror, on all ranks together."""

import json
import shutil
import tomllib

import pytest
import tomli_w

from contract import config as configuration
from contract.copies.pace import Pace
from contract.copies.target import Kind, open_store
from contract.manifest import Bounds, candidates
from contract.states import ExitCode, Phase
from supervisor.copies.send import Sender
from tests.storage import CREDENTIALS, Fault, find_secrets

pytestmark = pytest.mark.train


def _mirrored(bench, endpoint: str, name: str):
    """A run of 6 steps whose checkpoints 3 and 6 have a copy; it is to go on to step 8."""
    run = bench(
        name,
        run={"steps": 6},
        metadata={"labels": {"ciuic.io/checkpoint-path": "s3://bucket/trained"}},
        mirror={"endpoint": endpoint, "request_timeout_s": 1.0},
        data={"evaluate_interval_steps": 0},
    )
    run.train()
    config = configuration.read_resolved(run.run.config)
    store = open_store(config, Kind.MIRROR, run.run.run_id, CREDENTIALS)
    pace = Pace(0.0, clock=float, wait=float)
    for found in candidates(run.run, before=(9, 9), bounds=Bounds(), deep=True, skipped=print):
        Sender(store=store, pace=pace, guard=lambda: None, moved=lambda _: None).send(found)
    _change(run, "run", steps=8)
    run.extra |= CREDENTIALS
    return run


def _change(run, section: str, **keys) -> None:
    value = tomllib.loads(run.run.config.read_text())
    value[section] |= keys
    run.run.config.write_text(tomli_w.dumps(value))


def _resumed(run, generation: int) -> int:
    return json.loads(run.run.attempt(1).resume(generation).read_text())["step"]


def test_lost_or_damaged_checkpoints_come_back(bench, proxy, tmp_path) -> None:
    run = _mirrored(bench, proxy.endpoint, "recalled")
    newest = run.run.checkpoint(6, 1, 1)
    kept = tmp_path / "kept"
    shutil.copytree(run.run.checkpoints, kept)

    def restore_here() -> None:
        shutil.rmtree(run.run.checkpoints)
        shutil.copytree(kept, run.run.checkpoints)

    # One byte of one shard: only that shard is fetched.
    damaged = newest / "rank-00001.pt"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    generation = run.start(CIUIC_MIN_STEP="1")
    assert generation.codes() == [0, 0], generation.text()
    assert _resumed(run, 2) == 6
    assert "1 files from there" in generation.text()
    record = json.loads(run.run.attempt(1).resume(2).read_text())
    assert record["restored_from"].startswith("s3://bucket/trained/")

    # Everything is gone, and it takes a while: every rank shows that it moves on.
    restore_here()
    shutil.rmtree(run.run.checkpoints)
    _change(run, "mirror", bandwidth_mb_s=0.2)
    generation = run.start(CIUIC_MIN_STEP="1")
    for rank in (0, 1):
        generation.until(
            lambda seen: seen.phase is Phase.LOAD and seen.step == 0 < seen.micro_step, rank=rank
        )
    assert generation.codes() == [0, 0], generation.text()
    assert _resumed(run, 3) == 6

    # The mirror does not answer: an older one that is right here does.
    restore_here()
    damaged.write_bytes(data)
    proxy.become(Fault(kind="refuse"))
    generation = run.start(CIUIC_MIN_STEP="1")
    assert generation.codes() == [0, 0], generation.text()
    assert _resumed(run, 4) == 3
    assert "no copy was brought back from the mirror" in generation.text()

    # Nothing is right anywhere: refused, with the reason of both.
    shutil.rmtree(run.run.checkpoints)
    generation = run.start(CIUIC_MIN_STEP="1")
    assert generation.codes() == [ExitCode.REFUSED] * 2
    assert "not starting from step 0; mirror: s3://bucket/trained/" in generation.text()
    assert not find_secrets(tmp_path)
