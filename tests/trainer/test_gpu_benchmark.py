"""The benchmark for a GPU runs on a CPU too, small: so that it works on the day when there is a device."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.train, pytest.mark.slow]  # three processes that import everything

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "numerics.py"


def test_the_tiny_mode_prints_its_table():
    """fp16 is left out here with the reason: this CPU has none, and the other cases go on."""
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "--tiny"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split("|")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("|")}
    assert "left out" in rows["fp16"] or "tokens" not in rows["fp16"]
    for name in ("bf16", "fp8 + ZeRO 3"):
        assert "left out" not in rows[name], done.stdout
        assert "%" in rows[name]
