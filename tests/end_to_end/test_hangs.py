"""Hangs of the real trainer under a real supervisor: who is to blame, and what torch's flight recorder adds."""

import json
import re
import sys
from pathlib import Path

import pytest

from contract.events import EvidenceKept, Judged
from contract.evidence import read_evidence
from tests.end_to_end.conftest import Scene, bodies, losses

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

PROGRAM = [sys.executable, "-P", str(Path(__file__).with_name("disagreeing.py"))]
SETTINGS = (
    "run.steps=30",
    f"job.command={json.dumps(PROGRAM)}",
    "checkpoint.interval_steps=4",
    "data.evaluate_interval_steps=0",
    "supervisor.in_place_limit=20",
    "monitor.hang_floor_s=3.0",
)


def test_a_sleeping_loader_and_a_missing_all_reduce_are_told_apart(scene: Scene) -> None:
    run = scene.submit(*SETTINGS)
    scene.supervise()
    assert scene.wait_for_end(run, 200) == "completed", scene.story(run)
    assert list(losses(run)) == list(range(1, 31))

    asleep, disagreed = (body for body in bodies(run) if isinstance(body, Judged))
    assert (asleep.verdict, asleep.cause, asleep.suspects, asleep.limits["phase"]) == (
        "hung", "hang", (1,), "data",
    )  # fmt: skip
    assert (disagreed.verdict, disagreed.cause, disagreed.limits["phase"]) == ("hung", "hang", "optimizer")
    assert set(disagreed.suspects) == {0, 1}, "no step and no phase tells who left it out"

    first, second = (body for body in bodies(run) if isinstance(body, EvidenceKept))
    assert "rank 1 in read_samples (disagreeing.py:" in first.digest["en"]
    assert "rank 0 in all_reduce" in first.digest["en"]
    assert ": entered by rank 0, not by rank 1" in first.digest["en"].splitlines()[1]
    # The recorder does tell: the numbers at the end of the step were brought by rank 0 alone.
    left_out = re.match(r"all_reduce (\d+)→\1 #", second.digest["en"].splitlines()[1])
    assert left_out, second.digest
    assert int(left_out[1]) > 2, "the one before a step has two numbers"
    assert "entered by rank 0, not by rank 1" in second.digest["en"]
    assert [(item.suspects, item.phase) for item in (first, second)] == [((1,), "data"), ((1,), "collective")]
    told = scene.status(run)["attempts"][0]["generations"][:2]
    assert [(item["suspects"], item["phase"]) for item in told] == [([1], "data"), ([1], "collective")]
    assert "suspected: rank 1, phase collective" in scene.ciuic("explain", run.run_id, "--lang", "en").stdout
    found = read_evidence(run.attempt(1).evidence(2), "0")
    assert found is not None
    assert all(worker.collectives and worker.source == "py-spy" for worker in found.workers), found
