"""The real daemon over simulated hours with faults by chance: no lost run, no double job, nothing that piles up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")


def soaked(hours: float, runs: int, timeout_s: float) -> dict:
    command = [sys.executable, "-P", str(SOAK), "--hours", str(hours), "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def nothing_went_wrong(found: dict) -> None:
    assert found["trouble"] == [], "a round that broke, two jobs at once, or a run that was given up"
    assert found["lost"] == [], "runs that do not train after a quiet time"
    assert found["submitted_twice"] == 0
    assert set(found["ends"]) <= {"running", "completed", "cancelled"}


@pytest.mark.timeout(280)
def test_an_hour_with_faults() -> None:
    found = soaked(1, 8, 240)
    nothing_went_wrong(found)
    assert sum(found["faults"].values()) >= 3
    assert found["verdicts"], "faults were seen"
    begin, end = found["marks"]["0.5"], found["marks"]["1.0"]
    assert end["files"] <= begin["files"] + 4, "handles leak"
    assert end["threads"] <= begin["threads"] + 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_day_with_faults() -> None:
    found = soaked(24, 50, 7000)
    nothing_went_wrong(found)
    assert sum(found["faults"].values()) > 1000
    marks = [(float(hour), mark) for hour, mark in found["marks"].items()]
    before = [mark for hour, mark in marks if 12 <= hour < 18]
    last = [mark for hour, mark in marks if hour >= 18]
    for what, room in (("files", 16), ("threads", 2), ("rss_mb", 10)):
        most = max(mark[what] for mark in before)
        assert max(mark[what] for mark in last) <= most + room, (
            f"{what}: runs come and go, and so must what they take"
        )
