"""A save beside the training: what goes on meanwhile, what a file system can do to it, and who may publish."""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from contract import config as configuration
from contract import manifest
from contract.states import Cause, Phase
from supervisor.core.causes import cause_in
from trainer.origin import code_version, config_digest

pytestmark = pytest.mark.train

# Rank 1's writing of every file waits for {gate} to go away.
GATED = """
import os, time, trainer.preload
from trainer import shards
write = shards.write_shard
def gated(directory, name, fill, moved):
    while os.environ["RANK"] == "1" and os.path.exists({gate!r}):
        time.sleep(0.01)
        {also}
    return write(directory, name, fill, moved)
shards.write_shard = gated
"""
LONG = {"run": {"steps": 100_000}}


def until(condition, what, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.01)
    return found


def valid_steps(run) -> list[int]:
    found = [manifest.examine(directory, deep=False) for directory in manifest.directories(run.run)]
    return [item.step for item in found if item.valid]


def order(generation, name: str) -> None:
    generation.pages[0].give_orders({"orders": [{"id": name, "kind": "checkpoint"}]})


def leave(generation) -> None:
    generation.signal(signal.SIGUSR1, ranks=[0])
    assert generation.codes() == [75] * len(generation.pids), generation.text()


@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_training_goes_on_while_a_save_is_written(bench, tmp_path, policy):
    run = bench(**LONG, checkpoint={"interval_steps": 4, "while_saving": policy})
    gate = tmp_path / "gate"
    gate.touch()
    generation = run.start(CIUIC_TEST_BEFORE=GATED.format(gate=str(gate), also="moved()"))
    generation.until(lambda page: page.step >= 7)
    assert valid_steps(run) == []
    if policy == "skip":
        generation.until(lambda page: page.step >= 14)
        assert "step-000000008-a0001-g0001 is left out" in generation.text()
        assert valid_steps(run) == []
    else:
        # At step 8 it waits for the end of the save before, and shows that it lives.
        waiting = generation.until(lambda page: page.step == 8 and page.phase is Phase.SAVE)
        generation.until(lambda page: page.counter >= waiting.counter + 3)
        assert generation.pages[0].read().step == 8
    # The order to leave waits for the end of everything.
    generation.signal(signal.SIGUSR1, ranks=[0])
    generation.until(lambda page: page.phase is Phase.SAVE)
    assert valid_steps(run) == []
    gate.unlink()
    assert generation.codes() == [75, 75], generation.text()
    newest, *older = valid_steps(run)
    assert newest == run.steps(1)[-1]["step"]
    assert older[-1] == 4, "what was being written counts too"


def test_a_writer_that_stands_still_is_noticed_and_may_still_come_to_its_end(bench, tmp_path):
    run = bench(**LONG, checkpoint={"interval_steps": 100_000}, monitor={"save_s": 1.0})
    gate = tmp_path / "gate"
    gate.touch()
    generation = run.start(CIUIC_TEST_BEFORE=GATED.format(gate=str(gate), also=""))
    generation.until(lambda page: page.step >= 2)
    order(generation, "a")
    told = generation.until(lambda page: page.save_error != "")
    assert "rank 1: the file system does not answer" in told.save_error
    generation.until(lambda page: page.step >= told.step + 3)
    gate.unlink()
    until(lambda: valid_steps(run), generation.text)
    generation.until(lambda page: page.save_error == "")
    leave(generation)


def test_a_writer_that_stands_still_stops_the_run_when_that_is_the_policy(bench, tmp_path):
    run = bench(
        **LONG,
        checkpoint={"interval_steps": 2, "on_error": "stop", "while_saving": "skip"},
        monitor={"save_s": 1.0},
    )
    gate = tmp_path / "gate"
    gate.touch()
    generation = run.start(CIUIC_TEST_BEFORE=GATED.format(gate=str(gate), also=""))
    assert generation.codes() == [1, 1], generation.text()
    assert "rank 1: the file system does not answer" in generation.pages[0].read().exception["text"]


def test_a_writer_that_stands_still_at_the_end_is_named_by_its_own_rank(bench, tmp_path):
    run = bench(checkpoint={"interval_steps": 100}, monitor={"save_s": 1.0})
    gate = tmp_path / "gate"
    gate.touch()
    generation = run.start(CIUIC_TEST_BEFORE=GATED.format(gate=str(gate), also=""))
    assert run.warm.ask(wait=[generation.pids[1]]) == [1], generation.text()
    assert "the file system does not answer" in generation.pages[1].read().exception["text"]
    generation.signal(signal.SIGKILL, ranks=[0])
    run.warm.ask(wait=[generation.pids[0]])


def test_without_a_copy_training_stands_still_and_the_result_is_the_same(bench):
    plain, beside = (
        bench(str(background), checkpoint={"interval_steps": 3, "background": background})
        for background in (False, True)
    )
    plain.train()
    beside.train()
    assert plain.losses() == beside.losses()
    assert valid_steps(plain) == valid_steps(beside) == [8, 6, 3]
    sizes = [[path.name for path in sorted(run.run.checkpoint(6, 1, 1).iterdir())] for run in (plain, beside)]
    assert sizes[0] == sizes[1]


def test_what_has_changed_is_told_at_the_resume(bench):
    run = bench()
    run.train()
    directory = run.run.checkpoint(8, 1, 1)
    before = manifest.examine(directory, deep=True).manifest
    manifest.publish(directory, replace(before, code="0.0.9 xxh3:0"))
    text = run.run.config.read_text()
    run.run.config.write_text(text.replace("steps = 8", "steps = 10").replace("lr = 0.003", "lr = 0.002"))
    told = run.train(CIUIC_SKIP_WINDOWS="[[70, 72]]").text()
    assert "setting changed since step-000000008-a0001-g0001: run.steps: 8 → 10" in told
    assert told.count("setting changed") <= 2
    assert f"other code than in {directory.name}: {before.code}, was 0.0.9 xxh3:0" in told
    assert "jumped from now on: sampler positions [70, 72)" in told
    assert run.steps(2)[0]["positions"] == [64, 74]
    # The windows are in the checkpoint: a resume that is told of none jumps them all the same.
    found = manifest.examine(run.run.checkpoint(10, 1, 2), deep=True).manifest
    assert found.skip_windows == ((70, 72),)
    assert found.code == before.code == code_version()
    assert found.config_digest == config_digest(configuration.read_resolved(run.run.config))
    assert before.config_digest not in {"", found.config_digest}
    assert "other code" not in run.train().text()


def test_a_zombie_publishes_nothing_and_removes_nothing(bench):
    run = bench(run={"steps": 60}, checkpoint={"interval_steps": 4, "keep_last": 2})
    zombie = run.start()
    zombie.until(lambda page: page.step >= 9)
    zombie.signal(signal.SIGSTOP)
    until(lambda: valid_steps(run), "a checkpoint")
    resumed_at = valid_steps(run)[0]
    second = run.start(CIUIC_SKIP_WINDOWS="[]")
    second.until(lambda page: page.step > resumed_at)
    zombie.signal(signal.SIGCONT)
    assert zombie.codes() == [77, 77], zombie.text()
    assert "fenced" in zombie.pages[0].read().exception["text"]
    assert second.codes() == [0, 0], second.text()
    newer = [path.name for path in manifest.directories(run.run) if "g0001" in path.name]
    assert all(int(name[5:14]) <= resumed_at + 8 for name in newer)
    found = manifest.candidates(
        run.run, before=(1, 3), bounds=manifest.Bounds(), deep=True, skipped=lambda _: None
    )
    assert next(found).path.name == "step-000000060-a0001-g0002"


# --- file systems that refuse, with real mounts

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@contextmanager
def mounted(place: Path, megabytes: int) -> Iterator[None]:
    try:
        call("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"tmpfs cannot be mounted here: {error.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True, timeout=30)


def fill(ballast: Path) -> None:
    """Until nothing fits any more."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017


@needs_mounts
def test_full_read_only_and_vanished(bench, tmp_path):
    """Each time training goes on, the cause is told, what counted counts, and the next save works by itself."""
    run = bench(**LONG, checkpoint={"interval_steps": 100_000, "keep_last": 2})
    place = run.run.checkpoints
    place.mkdir()
    with mounted(place, 64):
        generation = run.start()
        generation.until(lambda page: page.step >= 1)

        def saved(name: str) -> None:
            before = valid_steps(run)[:1]
            order(generation, name)
            until(lambda: valid_steps(run)[:1] != before, generation.text)
            generation.until(lambda page: page.save_error == "")

        def refused(name: str) -> str:
            before = valid_steps(run)
            order(generation, name)
            told = generation.until(lambda page: page.save_error != "")
            generation.until(lambda page: page.step >= told.step + 2)
            assert [step for step in before if step in valid_steps(run)] == before
            return told.save_error

        saved("first")
        ballast = place / "ballast"
        fill(ballast)
        assert "No space left on device" in refused("full")
        assert len(manifest.directories(run.run)) == 1, "what was written of it is gone"
        ballast.unlink()
        saved("second")

        call("mount", "-o", "remount,ro", str(place))
        assert "Read-only file system" in refused("read-only")
        call("mount", "-o", "remount,rw", str(place))
        saved("third")

        kept = tmp_path / "moved"
        kept.mkdir()
        call("mount", "--bind", str(place), str(kept))
        call("umount", "-l", str(place))
        order(generation, "vanished")
        told = generation.until(lambda page: page.save_error != "").save_error
        assert "its file system is not mounted" in told
        assert list(place.iterdir()) == [], "nothing was written under the mount point"
        call("mount", "--bind", str(kept), str(place))
        saved("fourth")
        leave(generation)
        newest = valid_steps(run)[0]
        second = run.start()
        second.until(lambda page: page.step > newest)
        assert f"starting from step-{newest:09d}" in second.text()
        leave(second)
        subprocess.run(["umount", "-l", str(kept)], check=False, capture_output=True, timeout=30)


OVER_QUOTA = """
import os, trainer.preload
from trainer import shards
write = shards.write_shard
def over(directory, name, fill, moved):
    if os.environ["RANK"] == "0" and os.path.exists(directory.parent.parent / "quota"):
        raise OSError(122, "Disk quota exceeded", str(directory / name))
    return write(directory, name, fill, moved)
shards.write_shard = over
"""


def test_a_failed_save_stops_the_run_on_all_ranks_when_that_is_the_policy(bench):
    run = bench(**LONG, checkpoint={"interval_steps": 2, "on_error": "stop"})
    generation = run.start(CIUIC_TEST_BEFORE=OVER_QUOTA)
    until(lambda: valid_steps(run), generation.text)
    (run.run.path / "quota").touch()
    assert generation.codes() == [1, 1], generation.text()
    for page in generation.pages:
        told = page.read().exception
        assert told["type"] == "SaveError"
        assert cause_in(f"SaveError: {told['text']}") is Cause.DISK_FULL
    newest = valid_steps(run)[0]
    (run.run.path / "quota").unlink()
    again = run.start()
    again.until(lambda page: page.step > newest)
    assert f"starting from step-{newest:09d}" in again.text()
    leave(again)


def test_quota_and_a_directory_that_is_gone(bench):
    run = bench(**LONG, checkpoint={"interval_steps": 100_000})
    quota = run.run.path / "quota"
    quota.touch()
    generation = run.start(CIUIC_TEST_BEFORE=OVER_QUOTA)
    generation.until(lambda page: page.step >= 1)
    order(generation, "a")
    told = generation.until(lambda page: page.save_error != "").save_error
    assert "rank 0: OSError: [Errno 122] Disk quota exceeded" in told
    quota.unlink()
    shutil.rmtree(run.run.checkpoints)
    order(generation, "b")
    generation.until(lambda page: "is not mounted" in page.save_error)
    run.run.checkpoints.mkdir()
    order(generation, "c")
    until(lambda: valid_steps(run), generation.text)
    leave(generation)
