"""The main job with the real trainer: hurt it in every phase, and nothing of the training may differ."""

import os
import signal
from pathlib import Path

import pytest

from contract.beat import WorkerBeat
from contract.events import Judged, Recovered
from contract.layout import RunDir
from contract.manifest import NAME, directories, examine
from contract.states import ExitCode, Phase
from tests.end_to_end.conftest import (
    KEY,
    RECIPE,
    Scene,
    bodies,
    hit,
    losses,
    wait_for,
    wait_for_worker,
    worker,
)
from tests.supervisor.schemas import check

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]

STEPS = 60
SETTINGS = (
    f"run.steps={STEPS}",
    "checkpoint.interval_steps=8",
    "checkpoint.keep_last=3",
    "data.evaluate_interval_steps=25",
    "supervisor.in_place_limit=20",
    "supervisor.max_failures=20",
    "monitor.hang_floor_s=3.0",
)


@pytest.fixture(scope="module", autouse=True)
def data_is_prepared() -> None:
    if not (RECIPE.parent / "../data/stdlib/index.json").exists():
        pytest.fail("data/stdlib is missing: make setup prepares it")


def generation_of(run: RunDir) -> int:
    resumes = sorted(run.attempts.glob("*/resume-g*.json"))
    return int(resumes[-1].stem.removeprefix("resume-g")) if resumes else 0


def after_generation(run: RunDir, number: int, phase: Phase | None = None) -> WorkerBeat:
    """A worker of a later generation than this."""

    def ready(found: WorkerBeat) -> bool:
        return generation_of(run) > number and (phase is None or found.phase is phase)

    return wait_for_worker(run, 1, ready)


def kill_in_save(run: RunDir, *, complete_shards: bool) -> Path:
    """SIGKILL rank 0 while a checkpoint has no manifest yet: during the save, or when all shards stand."""
    known = set(directories(run))

    def caught() -> Path | None:
        for directory in directories(run):
            names = {entry.name for entry in directory.iterdir()} if directory.is_dir() else set()
            if directory in known or NAME in names or not names:
                continue
            if not complete_shards or {"rank-00000.pt", "rank-00001.pt"} <= names:
                target = worker(run, 0)
                if target is None:
                    return None
                os.kill(target.pid, signal.SIGKILL)
                return directory
        return None

    return wait_for(caught, 90, "no save was caught in the act")  # type: ignore[return-value]


def test_recovered_equals_uninterrupted_after_faults_in_every_phase(scene: Scene) -> None:
    calm = scene.submit(*SETTINGS)
    supervisor = scene.supervise()
    assert scene.wait_for_end(calm) == "completed"

    run = scene.submit(*SETTINGS)
    # before the first step
    wait_for_worker(run, 1, lambda found: found.phase is Phase.START)
    hit(run, 1, lambda found: found.step == 0)
    # in the middle of the steps
    after_generation(run, 1)
    hit(run, 1, lambda found: found.step >= 10)
    # during a save, and between the last shard and the manifest
    after_generation(run, 2)
    half = kill_in_save(run, complete_shards=False)
    after_generation(run, 3)
    almost = kill_in_save(run, complete_shards=True)
    # right after a resume
    before = generation_of(run)
    wait_for(lambda: generation_of(run) > before, 60, "no resume")
    hit(run, 1, lambda found: True)
    # frozen
    after_generation(run, before + 1)
    hit(run, 1, lambda found: found.step >= 40 and found.phase.in_step, signal.SIGSTOP)

    assert scene.wait_for_end(run, 180) == "completed", scene.story(run)
    assert supervisor.poll() is None
    assert losses(run) == losses(calm)
    assert list(losses(run)) == list(range(1, STEPS + 1))
    verdicts = [(body.verdict, body.suspects[:1]) for body in bodies(run) if isinstance(body, Judged)]
    assert [kind for kind, _ in verdicts].count("hung") == 1, verdicts
    assert ("hung", (1,)) in verdicts
    assert len([body for body in bodies(run) if isinstance(body, Recovered)]) >= 4
    for directory in (half, almost):
        if directory.exists():
            assert not examine(directory, deep=False).valid, "what was killed in the act must not count"
    assert check("replay", scene.ciuic("replay", str(run.path), "--json").stdout)["verdicts"], (
        "nothing was judged again"
    )
    texts = scene.robot.texts()
    assert any("恢复" in text for text in texts), texts
    assert not [path for path in run.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_damaged_checkpoints_are_skipped_and_none_valid_is_refused(scene: Scene) -> None:
    settings = (*SETTINGS, "run.steps=2000")
    run = scene.submit(*settings)
    scene.supervise()
    wait_for(
        lambda: len([d for d in directories(run) if examine(d, deep=False).valid]) >= 2, 90, "two checkpoints"
    )
    stopped = hit(run, 0, lambda found: found.step % 8 == 3, signal.SIGSTOP)  # nobody writes while we damage
    newest = directories(run)[0]
    shard = next(path for path in newest.iterdir() if path.name.startswith("rank-"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    os.kill(stopped.pid, signal.SIGKILL)
    wait_for(lambda: generation_of(run) == 2, 60, lambda: scene.story(run))
    log = "".join(path.read_text() for path in run.attempts.glob("*/logs/*"))
    assert f"{newest.name} skipped" in log
    assert "checksum" in log

    wait_for_worker(run, 0, lambda found: found.step > 0)
    stopped = hit(run, 0, lambda found: found.step % 8 == 3, signal.SIGSTOP)
    for directory in directories(run):
        (directory / NAME).unlink(missing_ok=True)
    os.kill(stopped.pid, signal.SIGKILL)
    assert scene.wait_for_end(run) == "failed"
    exits = [
        int(body.signature is not None)
        for body in bodies(run)
        if isinstance(body, Judged) and body.verdict == "refused"
    ]
    assert exits, scene.story(run)
    assert any("checkpoint" in text.lower() or "检查点" in text for text in scene.robot.texts()), (
        scene.robot.texts()
    )
    assert scene.status(run)["state"] == "failed"


def test_time_limit_signal_saves_and_the_next_attempt_goes_on(scene: Scene) -> None:
    run = scene.submit(*SETTINGS)
    scene.supervise()
    wait_for_worker(run, 0, lambda found: found.step >= 5)
    agent = next(iter((run.attempt(1).alive).iterdir()))
    assert agent.exists()
    from tests.end_to_end.conftest import beats

    os.kill(beats(run)[0].pid, signal.SIGUSR1)
    assert scene.wait_for_end(run) == "completed", scene.story(run)
    assert len(scene.status(run)["attempts"]) == 2
    assert list(losses(run)) == list(range(1, STEPS + 1))
    assert ExitCode.SAVED == 75
