"""The node's figures: for Prometheus, and into the workers' pages. A process of its own beside the agent.

    python -P -m slurm.agent.exporter AGENT_PID RUN_DIR ATTEMPT NODE ADDRESS PORT      # port 0: pages only

A call of the driver that hangs holds up the thread that made it and nobody else: training goes on, the agent goes on,
and the time of the last sample, which is exported, stands still.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contract.layout import RunDir
from contract.page import PageReading, WorkerPage
from slurm.agent import devices
from slurm.agent.pages import pages_of
from slurm.agent.spawner import die_with_parent

_PERIOD_S = 1.0
_MIB = 1 << 20
# (metric, help, figure of the device, factor to the base unit)
_GPU = (
    (
        "ciuic_gpu_utilization_ratio",
        "Share of the last second in which the GPU worked.",
        "busy_percent",
        0.01,
    ),
    ("ciuic_gpu_memory_used_bytes", "GPU memory in use.", "memory_used_mib", _MIB),
    ("ciuic_gpu_memory_total_bytes", "GPU memory in all.", "memory_total_mib", _MIB),
    ("ciuic_gpu_temperature_celsius", "Temperature of the GPU.", "celsius", 1),
    (
        "ciuic_gpu_ecc_uncorrected_errors",
        "Uncorrected memory errors since the driver started.",
        "ecc_uncorrected",
        1,
    ),
)


@dataclass
class Samples:
    """The newest look at the devices; `number` counts the looks, `at` is its time since the epoch (0: none yet)."""

    number: int = 0
    at: float = 0.0
    devices: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""


class NodeCollector(Collector):
    """What a scrape gets: the last sample and the workers' pages as they are. Labels: node, and gpu or local_rank."""

    def __init__(self, samples: Samples, run: RunDir, attempt: int, node: str) -> None:
        self._samples, self._run, self._attempt, self._node = samples, run, attempt, node

    def collect(self) -> Iterable[Metric]:
        """Everything, with at most 64 GPUs and 32 workers."""
        yield from self._gpus()
        yield from self._workers()

    def _gpus(self) -> Iterable[Metric]:
        at = GaugeMetricFamily(
            "ciuic_gpu_last_sample_timestamp_seconds", "When the driver last answered.", labels=["node"]
        )
        at.add_metric([self._node], self._samples.at)
        yield at
        for name, text, figure, factor in _GPU:
            family = GaugeMetricFamily(name, text, labels=["node", "gpu"])
            for device in self._samples.devices:
                if figure in device:
                    family.add_metric([self._node, str(device["index"])], device[figure] * factor)
            yield family

    def _workers(self) -> Iterable[Metric]:
        labels = ["node", "local_rank"]
        step = GaugeMetricFamily("ciuic_worker_step", "Finished optimizer steps.", labels=labels)
        tokens = GaugeMetricFamily("ciuic_worker_tokens", "Tokens consumed by the run.", labels=labels)
        marks = CounterMetricFamily(
            "ciuic_worker_progress", "Signs of progress of the worker.", labels=labels
        )
        for local_rank, page in readings(self._run, self._attempt, self._node):
            key = [self._node, str(local_rank)]
            step.add_metric(key, page.step)
            tokens.add_metric(key, page.tokens)
            marks.add_metric(key, page.counter)
        yield from (step, tokens, marks)


def readings(run: RunDir, attempt: int, node: str) -> list[tuple[int, PageReading]]:
    """(local rank, what its page says) of the workers that are there now."""
    found = []
    for local_rank, path in pages_of(run, attempt, node):
        try:
            page = WorkerPage(path)
        except (OSError, ValueError):  # going or coming
            continue
        found.append((local_rank, page.read()))
        page.close()
    return found


def sample_on(samples: Samples, run: RunDir, attempt: int, node: str) -> None:
    """Look at the devices every second, for ever. Without a driver: say so once and stop."""
    try:
        import pynvml  # noqa: PLC0415 - only this thread needs it
    except ImportError as error:
        samples.problem = str(error)
        return
    while True:
        started = time.monotonic()
        try:
            samples.devices = devices.figures(pynvml)
        except pynvml.NVMLError as error:
            samples.devices = []
            if str(error) != samples.problem:
                samples.problem = str(error)
                sys.stderr.write(f"exporter: no GPU figures: {error}\n")
        else:
            samples.problem = ""
            samples.number, samples.at = samples.number + 1, time.time()
            hand_out(samples, run, attempt, node)
        time.sleep(max(0.0, _PERIOD_S - (time.monotonic() - started)))


def hand_out(samples: Samples, run: RunDir, attempt: int, node: str) -> None:
    """Each worker finds its own device's utilisation and share of memory in its page."""
    visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES", ""), samples.devices)
    for local_rank, path in pages_of(run, attempt, node):
        if local_rank >= len(visible):
            continue
        device = visible[local_rank]
        figures = {"sample": samples.number}
        if "busy_percent" in device:
            figures["utilization"] = device["busy_percent"] / 100
        if device.get("memory_total_mib"):
            figures["memory"] = device.get("memory_used_mib", 0) / device["memory_total_mib"]
        try:
            page = WorkerPage(path)
        except (OSError, ValueError):
            continue
        page.give_device(figures)
        page.close()


def visible_devices(variable: str, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The devices in the order in which the workers number them: CUDA_VISIBLE_DEVICES by index or UUID."""
    if not variable:
        return list(found)
    by_name = {str(device["index"]): device for device in found}
    by_name |= {device["uuid"]: device for device in found if "uuid" in device}
    return [by_name[name.strip()] for name in variable.split(",") if name.strip() in by_name]


def main(arguments: Sequence[str]) -> int:
    """Serve until the agent ends."""
    agent, run, attempt, node = (
        int(arguments[0]),
        RunDir(path=Path(arguments[1])),
        int(arguments[2]),
        arguments[3],
    )
    address, port = arguments[4], int(arguments[5])
    die_with_parent(agent)
    samples = Samples()
    if port:
        registry = CollectorRegistry()
        registry.register(NodeCollector(samples, run, attempt, node))
        start_http_server(port, addr=address, registry=registry)
    thread = threading.Thread(target=sample_on, args=(samples, run, attempt, node), daemon=True)
    thread.start()
    thread.join()
    sys.stderr.write(f"exporter: no GPU figures: {samples.problem}\n")
    if port:  # the workers' figures are worth serving without a driver
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
