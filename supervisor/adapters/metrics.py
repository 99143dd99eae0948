"""The supervisor's own /metrics for Prometheus, on this host only. Rules for alerts: supervisor/prometheus/.

Series per run are bounded: no job, step, rank or message is a label, and of finished runs only the newest are told.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from contract.states import JobState, RunState
from supervisor.core.lost_time import lost_time
from supervisor.core.observation import JobLook, Observation
from supervisor.seen import RunSeen

HOST = "127.0.0.1"
_MOST_FINISHED, _MOST_RUNS = 20, 500
_TICK_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
_DETECTION_S = (0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800)
_NOTHING = Observation(attempt=0, generation=0, job=JobLook(state=JobState.UNKNOWN))
_RECOVERY_S = (1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14_400)


class Exporter:
    """Serves /metrics. The daemon says when it has made a round; what the runs are is read when somebody asks."""

    def __init__(self, runs: Callable[[], Sequence[RunSeen]], version: str) -> None:
        self._registry = CollectorRegistry()
        self._ticks = Histogram(
            "ciuic_supervisor_tick_duration_seconds",
            "Time of one round over all runs that were due.",
            buckets=_TICK_S,
            registry=self._registry,
        )
        self._collector = _Runs(runs, version)
        self._registry.register(self._collector)

    def serve(self, port: int) -> None:
        """From now on, in a thread of its own.

        Raises:
            OSError: the port is taken.
        """
        start_http_server(port, addr=HOST, registry=self._registry)

    def round(self, seconds: float) -> None:
        """A round has ended."""
        self._ticks.observe(seconds)
        self._collector.ticked_at = time.time()


class _Runs(Collector):
    def __init__(self, runs: Callable[[], Sequence[RunSeen]], version: str) -> None:
        self._runs = runs
        self._version = version
        self.ticked_at = 0.0

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        runs = self._runs()
        shown = _shown(runs)
        yield InfoMetricFamily("ciuic_build", "The supervisor's version.", value={"version": self._version})
        yield _gauge(
            "ciuic_supervisor_last_tick_timestamp_seconds", "When the last round ended.", self.ticked_at
        )
        states = Counter(item.history.state for item in runs)
        yield _by("ciuic_runs", "Runs by state.", "state", {state.value: states[state] for state in RunState})
        yield from _alerts(runs)
        yield _by(
            "ciuic_export_truncated",
            "1: not everything is told.",
            "what",
            {"runs": float(len(shown) < len(runs))},
        )
        yield from _histories(shown)
        yield from _faults(shown)
        yield from _looks([item for item in shown if not item.history.state.final])


def _shown(runs: Sequence[RunSeen]) -> list[RunSeen]:
    """All that are not over, and the newest of the others."""
    over = sorted(
        (item for item in runs if item.history.state.final), key=lambda item: -item.history.state_at
    )
    going = [item for item in runs if not item.history.state.final]
    return (going + over[:_MOST_FINISHED])[:_MOST_RUNS]


def _alerts(runs: Sequence[RunSeen]) -> Iterable[Metric]:
    waiting = [alert.queued_at for item in runs for alert in item.history.outbox.values()]
    sent = CounterMetricFamily("ciuic_alerts_sent", "Alerts that left the outbox.", labels=["result"])
    sent.add_metric(["delivered"], sum(item.history.alerts_sent for item in runs))
    sent.add_metric(["failed"], sum(item.history.alerts_failed for item in runs))
    yield sent
    yield _gauge("ciuic_alerts_pending", "Alerts in the outbox.", len(waiting))
    oldest = GaugeMetricFamily(
        "ciuic_alerts_oldest_pending_timestamp_seconds", "When the oldest of them was queued."
    )
    if waiting:
        oldest.add_metric([], min(waiting))
    yield oldest


def _histories(runs: Sequence[RunSeen]) -> Iterable[Metric]:
    state = GaugeMetricFamily("ciuic_run_state", "1 for the state the run is in.", labels=["run", "state"])
    since = _per_run("ciuic_run_state_since_timestamp_seconds", "Since when.")
    attempt = _per_run("ciuic_run_attempt", "Number of the newest job.")
    target = _per_run("ciuic_run_target_step", "Steps at which the run is complete.")
    saved = _per_run("ciuic_run_checkpoint_last_valid_step", "Step of the newest checkpoint.")
    for item in runs:
        history, key = item.history, [item.run]
        for known in RunState:
            state.add_metric([item.run, known.value], float(history.state is known))
        since.add_metric(key, history.state_at)
        attempt.add_metric(key, history.newest.number if history.newest else 0)
        if history.target_steps:
            target.add_metric(key, history.target_steps)
        if history.newest_checkpoint:
            saved.add_metric(key, history.newest_checkpoint.step)
    yield from (state, since, attempt, target, saved)


def _faults(runs: Sequence[RunSeen]) -> Iterable[Metric]:
    verdicts = CounterMetricFamily("ciuic_run_verdicts", "Failures judged.", labels=["run", "verdict"])
    restarts = CounterMetricFamily("ciuic_run_restarts", "Recoveries by cause.", labels=["run", "cause"])
    redone = CounterMetricFamily("ciuic_run_steps_redone", "Steps done twice.", labels=["run"])
    detection = HistogramMetricFamily(
        "ciuic_run_detection_seconds", "From a fault to its verdict.", labels=["run"]
    )
    recovery = HistogramMetricFamily(
        "ciuic_run_recovery_seconds", "From a verdict to the next finished step.", labels=["run"]
    )
    for item in runs:
        history, key = item.history, [item.run]
        failed = (
            generation.failure
            for attempt in history.attempts
            for generation in attempt.generations
            if generation.failure
        )
        for verdict, count in Counter(failure.verdict for failure in failed).items():
            verdicts.add_metric([item.run, verdict], count)
        costs = lost_time(history, item.observation or _NOTHING, item.seen_at or history.state_at).faults
        for cause, count in Counter(cost.cause for cost in costs).items():
            restarts.add_metric([item.run, cause], count)
        redone.add_metric(key, sum(fault.repeated_steps for fault in history.faults))
        detection.add_metric(key, *_histogram([fault.detect_s for fault in history.faults], _DETECTION_S))
        recovery.add_metric(key, *_histogram([fault.restart_s for fault in history.faults], _RECOVERY_S))
    yield from (verdicts, restarts, redone, detection, recovery)


def _looks(runs: Sequence[RunSeen]) -> Iterable[Metric]:
    step = _per_run("ciuic_run_step", "Steps that every worker has done.")
    progress = _per_run("ciuic_run_last_progress_timestamp_seconds", "When the last worker to move moved.")
    ranks = GaugeMetricFamily("ciuic_run_ranks", "Ranks by phase.", labels=["run", "phase"])
    usual = _per_run("ciuic_run_step_time_median_seconds", "Usual time of a step.")
    speed = _per_run("ciuic_run_tokens_per_second", "Median of the newest steps.")
    loss = _per_run("ciuic_run_loss", "Median loss of the newest steps.")
    norm = _per_run("ciuic_run_grad_norm", "Median gradient norm of the newest steps.")
    ratio = _per_run(
        "ciuic_run_effective_time_ratio", "Share of the time in which training went forward for good."
    )
    for item in runs:
        observation, key = item.observation, [item.run]
        if observation is None or item.seen_at is None:
            continue
        workers = [worker for _, worker in observation.workers]
        if workers:
            step.add_metric(key, observation.step)
            progress.add_metric(key, item.seen_at - max(worker.idle_s for worker in workers))
        for phase, count in Counter(worker.phase.word for worker in workers).items():
            ranks.add_metric([item.run, phase], count)
        curve = observation.curve
        if curve and curve.pace:
            usual.add_metric(key, curve.pace.usual_s)
        if curve and math.isfinite(curve.tokens_per_s):
            speed.add_metric(key, curve.tokens_per_s)
        if curve and curve.numbers:
            loss.add_metric(key, curve.numbers.loss)
            norm.add_metric(key, curve.numbers.norm)
        effective = lost_time(item.history, observation, item.seen_at).ratio
        if effective is not None:
            ratio.add_metric(key, effective)
    yield from (step, progress, ranks, usual, speed, loss, norm, ratio)


def _histogram(values: Sequence[float], limits: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts as (upper limit, count), and the sum."""
    buckets = [(f"{limit:g}", float(sum(value <= limit for value in values))) for limit in limits]
    return [*buckets, ("+Inf", float(len(values)))], sum(values)


def _per_run(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["run"])


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
