"""The benchmark for a GPU runs on a CPU too, small: so that it works on the day when there is a device."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "numerics.py"


def test_the_tiny_mode_prints_its_table():
    """And the ratios to reach. fp16 is left out with the reason where a CPU has none, and the other cases go on."""
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "--tiny"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split("|")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("|")}
    assert "this CPU has no fp16" in rows["fp16"] or "%" in rows["fp16"]
    for name in (
        "ciuic",
        "bare DeepSpeed loop",
        "Hugging Face Trainer, its defaults",
        "ciuic, tuned",
        "bf16",
        "bf16, eager experts",
        "bf16, optimizer offloaded",
        "fp8 + ZeRO 3",
    ):
        assert "%" in rows[name], done.stdout + done.stderr
    reached = {
        "ciuic / bare DeepSpeed loop": "0.98",
        "ciuic, tuned / Hugging Face Trainer, its defaults": "1.15",
        "bf16 / bf16, eager experts": "4.0",
    }
    for name, wanted in reached.items():
        measured, least = (cell.strip() for cell in rows[name].split("|")[2:4])
        assert float(measured) > 0
        assert least == wanted
