"""The search for the largest micro-batch: the steps it takes, and one search with a real limit of memory."""

import math
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from contract import config as configuration
from tests.supervisor.schemas import check
from trainer.batch.fit import Trial, cache_file, keep, kept, largest, next_size, search, try_size
from trainer.commands import app


@pytest.mark.parametrize("most", [1, 2, 7, 64, 100])
def test_the_search_finds_the_largest_whatever_it_is(most):
    for limit in range(most + 2):
        trials = search(most, lambda size: Trial(micro_batch=size, fits=size <= limit))  # noqa: B023
        assert largest(trials) == min(limit, most)
        assert len(trials) <= 2 * math.log2(most + 1) + 2


def test_what_is_known_is_not_tried_again():
    known = [Trial(micro_batch=1, fits=True), Trial(micro_batch=2, fits=True)]
    trials = search(4, lambda size: Trial(micro_batch=size, fits=True), known)
    assert [trial.micro_batch for trial in trials] == [1, 2, 4]
    assert next_size({1: True, 2: False}, 64) is None


def test_an_answer_is_kept_for_one_model_and_device(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parse = lambda value: configuration.parse(  # noqa: E731
        {"data": {"path": str(tmp_path)}, **value},
        source="x",
        bases=[tmp_path],
        only=frozenset({"model", "batch"}),
    )
    same = parse({}), parse({"batch": {"global_batch_size": 32}})
    other = parse({"model": {"layers": 7}}), parse({"batch": {"sequence_length": 64}})
    assert cache_file(same[0]) == cache_file(same[1])
    assert len({cache_file(config) for config in (same[0], *other)}) == 3
    fits, not_there = (
        Trial(micro_batch=2, fits=True, peak=100, limit=500),
        Trial(micro_batch=4, fits=False, limit=500),
    )
    keep(cache_file(same[0]), [fits, not_there])
    assert kept(cache_file(same[0]), 400) == [fits, not_there]
    assert kept(cache_file(same[0]), 600) == [fits], "with more memory the larger one may fit"
    assert kept(cache_file(same[0]), 50) == [not_there]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A recipe of 8 samples a step on 2 ranks, and the sizes that were tried; the third trial is interrupted once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = configuration.parse(
        {
            "data": {"path": str(tmp_path)},
            "batch": {"global_batch_size": 8, "micro_batch_size": 1},
            "job": {"ranks_per_node": 2},
        },
        source="x",
        bases=[tmp_path],
        only=frozenset({"model", "batch", "job"}),
    )
    tried = []

    def trial(_recipe, _config, size, memory):
        tried.append(size)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return Trial(micro_batch=size, fits=True, peak=1, tokens_per_s=1.0, limit=memory)

    monkeypatch.setattr("contract.config.load", lambda *_: config)
    monkeypatch.setattr("trainer.batch.fit.try_size", trial)
    return tried


def test_a_search_ends_at_the_share_of_the_global_batch_and_goes_on_after_an_interruption(small):
    first = CliRunner().invoke(app, ["fit", "x.toml"])
    assert first.exit_code != 0
    assert "Tries micro-batches up to 4 by real steps" in first.stderr
    second = CliRunner().invoke(app, ["fit", "x.toml"])
    assert second.exit_code == 0, second.output
    assert small == [1, 2, 4, 4], "what was done is not done again, and nothing larger than 8 / 2 is tried"
    assert "--max N tries them" in second.stdout
    again = CliRunner().invoke(app, ["fit", "x.toml", "--max", "2"])
    assert "micro_batch_size = 2" in again.stdout
    assert len(small) == 4


@pytest.mark.train
def test_a_trial_says_what_it_took_or_that_there_was_no_room(bench):
    run = bench("fit", batch={"global_batch_size": 2, "micro_batch_size": 1})
    config = configuration.read_resolved(run.run.config)
    trial = try_size(run.run.config, config, 2, 8 << 30)
    assert trial.fits
    assert trial.peak > 100 << 20
    assert trial.tokens_per_s > 0
    assert not try_size(run.run.config, config, 2, 1 << 20).fits


@pytest.mark.train
@pytest.mark.slow
def test_fit_names_the_largest_that_a_limit_of_memory_allows(bench, corpus, tmp_path):
    """0.75 GiB for one rank: one sample of 1,024 tokens fits, 64 do not."""
    batch = {"global_batch_size": 1, "micro_batch_size": 1, "sequence_length": 1024}
    run = bench("fit", world_size=1, batch=batch)

    def fit(*options):
        return subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "ciuic",
                "trainer",
                "fit",
                run.run.config,
                "--memory-gib",
                "0.75",
                *options,
            ],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    done = fit("--max", "64", "--json")
    assert done.returncode == 0, done.stderr
    found = check("fit", done.stdout)
    sizes = {trial["micro_batch"]: trial["fits"] for trial in found["trials"]}
    assert sizes[1]
    assert False in sizes.values()
    assert found["micro_batch"] == max(size for size, fits in sizes.items() if fits)
    again = fit("--max", "64")
    assert "measured before" in again.stdout
    assert f"micro_batch_size = {found['micro_batch']}" in again.stdout
