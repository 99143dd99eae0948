"""What one rank can say about a step: how busy its device was, how full, how long a sample takes."""

import logging
import threading
import time
from typing import Any, Protocol

import requests
import torch

from contract.config.batch import Batch
from contract.page import WorkerPage
from trainer.batch.controller import Figures

log = logging.getLogger(__name__)

_QUERY_S = 5.0
_STALE_S = 60.0  # Prometheus hands out samples for five minutes after the exporter has gone


class Gauge(Protocol):
    """A place that utilisation and memory come from. Reading it never blocks."""

    def read(self, *, worked_s: float, seconds: float) -> Figures:
        """(busy, memory) of the step that took `seconds`, of which this rank computed `worked_s`."""

    def close(self) -> None:
        """Nothing is read any more."""


def gauge_of(wanted: Batch, page: WorkerPage, device: torch.device, *, leads: bool) -> Gauge:
    """The gauge that [batch] source names. Of a Prometheus server only the leader asks, for all."""
    match wanted.source:
        case "nvml":
            return Nvml(page)
        case "prometheus":
            return Prometheus(wanted) if leads else Nothing()
        case "phases":
            return Phases(device)


class Nothing:
    """Not measured here."""

    def read(self, *, worked_s: float, seconds: float) -> Figures:  # noqa: ARG002 - the protocol
        """Nothing."""
        return Figures()

    def close(self) -> None:
        """Nothing to end."""


class Phases(Nothing):
    """The step's own times, and the memory of the device or, on CPU, of the machine."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def read(self, *, worked_s: float, seconds: float) -> Figures:
        """Busy is the share of the step in forward and backward passes."""
        return Figures(busy=min(1.0, worked_s / seconds), memory=self._memory())

    def _memory(self) -> float | None:
        if self._device.type != "cuda":
            return _host_memory()
        peak = torch.cuda.max_memory_reserved(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return float(peak / torch.cuda.get_device_properties(self._device).total_memory)


def _host_memory() -> float | None:
    """Share of the machine's memory that is in use; None where the kernel does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        total, free = (int(found[key].split()[0]) for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return 1 - free / total


class Nvml(Nothing):
    """The figures that the node agent writes into the worker's page."""

    def __init__(self, page: WorkerPage) -> None:
        self._page = page
        self._last = -1

    def read(self, *, worked_s: float, seconds: float) -> Figures:  # noqa: ARG002 - the protocol
        """The newest figures, each only once: one look of the driver is one measurement."""
        found = self._page.device()
        number = found.get("sample", -1)
        if number == self._last:
            return Figures()
        self._last = number
        return Figures(busy=found.get("utilization"), memory=found.get("memory"))


class Prometheus(Nothing):
    """Mean utilisation and highest memory over all series that the two queries give. A thread asks, every 5 s."""

    def __init__(self, wanted: Batch) -> None:
        self._url = wanted.prometheus_url.rstrip("/") + "/api/v1/query"
        self._queries = (wanted.prometheus_utilization, wanted.prometheus_memory)
        self._newest: Figures = Figures()
        self._seen_at = 0.0
        self._told = ""
        self._ended = threading.Event()
        threading.Thread(target=self._ask_on, name="prometheus", daemon=True).start()

    def read(self, *, worked_s: float, seconds: float) -> Figures:  # noqa: ARG002 - the protocol
        """Each sample of the server once; nothing while there is no new one."""
        found, self._newest = self._newest, Figures()
        return found

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _ask_on(self) -> None:
        while not self._ended.is_set():
            try:
                self._ask()
                self._told = ""
            except (requests.RequestException, ValueError, KeyError, TypeError) as error:
                if not self._told:
                    log.warning(
                        "batch: %s does not answer as Prometheus: %s; nothing is changed", self._url, error
                    )
                self._told = "said"
            self._ended.wait(_QUERY_S)

    def _ask(self) -> None:
        busy, memory = (self._series(query) for query in self._queries)
        at = max((when for when, _ in busy), default=0.0)
        if at <= self._seen_at or time.time() - at > _STALE_S:
            return
        self._seen_at = at
        self._newest = Figures(
            busy=sum(value for _, value in busy) / len(busy),
            memory=max((value for _, value in memory), default=None),
        )

    def _series(self, query: str) -> list[tuple[float, float]]:
        """(time of the sample, value) of each series. `timestamp()` asks when it was scraped, not when we asked."""
        values = self._instant(query)
        times = self._instant(f"timestamp({query})")
        return [(times.get(key, 0.0), value) for key, value in values.items()]

    def _instant(self, query: str) -> dict[str, float]:
        answer = requests.get(self._url, params={"query": query}, timeout=_QUERY_S)
        answer.raise_for_status()
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return {_labels(series["metric"]): float(series["value"][1]) for series in result}


def _labels(metric: dict[str, str]) -> str:
    """Which series it is, without the name: `timestamp()` drops it."""
    return str(sorted(item for item in metric.items() if item[0] != "__name__"))
