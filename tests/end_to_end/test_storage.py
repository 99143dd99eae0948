"""A disk that fills up under a running job: people learn the cause, training goes on, and the end is reached."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.events import SaveFailed
from contract.manifest import directories, examine
from tests.end_to_end.conftest import Scene, bodies, wait_for, wait_for_worker

pytestmark = [
    pytest.mark.train,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
]


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own in this place, with what was there."""
    aside = place.with_name("aside")
    shutil.copytree(place, aside)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if done.returncode:
        pytest.skip(f"tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        shutil.copytree(aside, place, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, timeout=30)


def test_a_full_disk_is_told_with_its_cause_and_its_end(scene: Scene) -> None:
    run = scene.submit("run.steps=100000", "checkpoint.interval_steps=10", "data.evaluate_interval_steps=0")
    scene.supervise()

    def newest() -> int:
        return next((found.step for d in directories(run) if (found := examine(d, deep=False)).valid), 0)

    wait_for(newest, 120, lambda: scene.story(run))
    with small_disk(run.checkpoints, 256):
        ballast = run.checkpoints / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass

        def told(words: str) -> bool:
            return any(words in text for text in scene.robot.texts())

        wait_for(lambda: told("检查点写不下去：磁盘已满"), 120, lambda: scene.story(run))
        failed = next(body for body in bodies(run) if isinstance(body, SaveFailed))
        assert failed.cause == "disk-full"
        told_of = scene.status(run)
        assert "No space left on device" in told_of["save_problem"]
        at = newest()
        wait_for_worker(run, 0, lambda found: found.step > told_of["step"] + 12)
        assert newest() == at, "the one before stays valid"
        ballast.unlink()
        wait_for(lambda: told("检查点恢复正常"), 120, lambda: scene.story(run))
        assert newest() > at
        assert scene.status(run)["save_problem"] is None
        assert len([text for text in scene.robot.texts() if "写不下去" in text]) == 1
        rows = scene.ciuic("checkpoints", run.run_id, "--lang", "en").stdout
        assert "MB" in rows
        scene.ciuic("cancel", run.run_id)
