"""The search for the largest micro-batch: the steps it takes, and one search with a real limit of memory."""

import math
import os
import subprocess
import sys

import pytest

from contract import config as configuration
from tests.supervisor.schemas import check
from trainer.batch.fit import Trial, cache_file, largest, next_size, search, try_size


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
    assert cache_file(same[0], 1 << 30) == cache_file(same[1], 1 << 30)
    assert len({cache_file(config, 1 << 30) for config in (same[0], *other)}) == 3
    assert cache_file(same[0], 1 << 30) != cache_file(same[0], 2 << 30)


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
