"""Figures on their way: a scripted driver, the agent's exporter, a real Prometheus, the batch of a real run."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from contract import events as ev
from contract.metrics import merged
from tests.end_to_end.conftest import bodies, wait_for

DRIVER = Path(__file__).with_name("driver")
IDLE = {"busy": 30, "used": 40, "celsius": 41}
BUSY = {"busy": 95, "used": 40, "celsius": 70}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """Set what the driver says."""
    script = tmp_path / "gpu.json"
    monkeypatch.setenv("SCRIPTED_GPU", str(script))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(DRIVER), os.environ.get("PYTHONPATH", "")]))

    def say(figures):
        aside = script.with_suffix(".new")
        aside.write_text(json.dumps(figures))
        aside.replace(script)

    return say


@pytest.fixture
def prometheus(tmp_path):
    """A server that scrapes one target every second: (its address, the target's port)."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    target, port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: ciuic, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    yield f"http://127.0.0.1:{port}", target
    server.terminate()
    server.wait(timeout=30)


def test_a_prometheus_server_drives_the_batch_of_a_run(scene, gpu, prometheus):
    url, target = prometheus
    gpu(IDLE)
    run = scene.submit(
        "run.steps=0",
        "run.tokens=100000000",
        f"node.metrics_port={target}",
        "batch.adaptive=grow",
        "batch.source=prometheus",
        f"batch.prometheus_url={url}",
        "batch.cooldown_steps=0",
        "batch.max_accumulation_steps=32",
        "checkpoint.interval_steps=1000000",
    )
    scene.supervise()

    def rows():
        return list(merged(run).values())

    def changes():
        return [row["batch_change"] for row in rows() if "batch_change" in row]

    wait_for(changes, 90, lambda: f"no change in {len(rows())} steps")
    assert "utilisation under 60% for 3 steps, memory 50% full" in changes()[0]
    first = rows()[0]["micro_steps"]
    gpu(BUSY)
    before = len(rows())
    wait_for(lambda: len(rows()) > before, 60, "it does not train on")
    scene.ciuic("cancel", run.run_id)
    told = [body.reason for body in bodies(run) if isinstance(body, ev.BatchChanged)]
    assert told == changes()[: len(told)] != [], "the journal has each change once"
    assert rows()[-1]["micro_steps"] > first
    assert rows()[-1]["global_batch"] > rows()[0]["global_batch"]


def test_a_driver_that_hangs_holds_up_no_scrape_and_no_agent(tmp_path, gpu):
    gpu(IDLE)
    port = free_port()
    exporter = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "slurm.agent.exporter",
            str(os.getpid()),
            str(tmp_path / "run"),
            "1",
            "0",
            "127.0.0.1",
            str(port),
        ]
    )

    def scrape():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def last_sample(text):
        lines = [
            line for line in text.splitlines() if line.startswith("ciuic_gpu_last_sample_timestamp_seconds{")
        ]
        return float(lines[0].split()[-1]) if lines else 0.0

    try:
        wait_for(lambda: last_sample(scrape()) > 0, 30, "no sample")
        text = scrape()
        assert 'ciuic_gpu_utilization_ratio{gpu="0",node="0"} 0.3' in text
        (used,) = [line for line in text.splitlines() if line.startswith("ciuic_gpu_memory_used_bytes{")]
        assert float(used.split()[-1]) == 40 << 30
        gpu({"hangs": True})
        seen = []

        def stands_still():
            seen.append(last_sample(scrape()))
            return len(seen) > 50 and seen[-1] == seen[-50]

        wait_for(stands_still, 30, "the samples go on")
        assert scrape(), "a hung driver holds up the scrape"
        assert exporter.poll() is None
    finally:
        exporter.kill()
        exporter.wait()
