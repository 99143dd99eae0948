"""Profiles of a few steps, by schedule or as asked. While there is none a step costs three comparisons."""

import json
import logging
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from contract.config.profile import Profile
from contract.page import WorkerPage
from contract.profile import RankProfile, trace_of, write_profile
from contract.states import Phase
from trainer.profiling.summary import PREFIX
from trainer.worker import Worker

log = logging.getLogger(__name__)

SCHEDULED = "schedule"
_PLAIN = 20  # unprofiled steps to compare with,
_FEWEST = 3  # and with fewer no comparison is made
_PATIENCE_S = 600.0
_LAST_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """So many steps on these ranks, for this order."""

    order: str
    steps: int
    ranks: tuple[int, ...]


class Profiler:
    """Called by every rank between two steps. All know of every profile, so that all agree on which steps it has."""

    def __init__(
        self, wanted: Profile, worker: Worker, page: WorkerPage, *, world_size: int, cuda: bool
    ) -> None:
        self._wanted, self._worker, self._page = wanted, worker, page
        self._size, self._cuda = world_size, cuda
        self._plain: deque[float] = deque(maxlen=_PLAIN)
        self._asked: list[Wish] = []
        self._free_at = 0  # the step after which no profile is going on
        self._capture: _Capture | None = None
        self._writing: list[threading.Thread] = []
        self._since: float | None = None

    def ask(self, order: Mapping[str, Any]) -> None:
        """An order of a person or the supervisor, the same on all ranks at the same step."""
        steps, ranks = int(order.get("steps") or self._wanted.steps), order.get("ranks") or self._wanted.ranks
        self._asked.append(
            Wish(order=str(order["id"]), steps=steps, ranks=tuple(int(rank) for rank in ranks))
        )

    def between(self, step: int) -> None:
        """After `step`, before the next one."""
        now = time.perf_counter()
        seconds = None if self._since is None else now - self._since
        if self._capture is not None:
            if self._capture.between(seconds):
                self._keep(self._capture)
                self._capture = None
        elif seconds is not None:
            self._plain.append(seconds)
        if step >= self._free_at and (wish := self._next(step)) is not None:
            self._begin(wish, step)
        self._since = time.perf_counter()

    def close(self) -> None:
        """The training is over: keep what was recorded, and wait for what is being written."""
        if self._capture is not None and self._capture.cut_short():
            self._keep(self._capture)
        self._capture = None
        deadline = time.monotonic() + _LAST_S
        for thread in self._writing:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _next(self, step: int) -> Wish | None:
        if self._asked:
            return self._asked.pop(0)
        every = self._wanted.every_steps
        if step in self._wanted.at_steps or (every and step and not step % every):
            return Wish(order=SCHEDULED, steps=self._wanted.steps, ranks=tuple(self._wanted.ranks))
        return None

    def _begin(self, wish: Wish, step: int) -> None:
        ranks = tuple(rank for rank in dict.fromkeys(wish.ranks) if rank < self._size)
        self._free_at = step + 1 + wish.steps
        if self._worker.rank not in ranks:
            return
        facts = RankProfile(
            run=self._worker.run.run_id,
            attempt=self._worker.attempt,
            generation=self._worker.generation,
            order=wish.order,
            first_step=step + 2,
            steps=wish.steps,
            rank=self._worker.rank,
            ranks=ranks,
            plain_s=statistics.median(self._plain) if len(self._plain) >= _FEWEST else None,
            profiled_s=0.0,
            stopped_s=0.0,
        )
        log.info("profiles steps %d to %d for %s", step + 2, step + 1 + wish.steps, wish.order)
        try:
            self._capture = _Capture(facts, self._page, cuda=self._cuda)
        except RuntimeError as error:  # another profiler is at work in this process, or the device has none
            self._fail(facts, error)

    def _keep(self, capture: "_Capture") -> None:
        thread = threading.Thread(target=self._write, args=(capture,), name="profile", daemon=True)
        self._writing = [item for item in self._writing if item.is_alive()]
        self._writing.append(thread)
        thread.start()

    def _write(self, capture: "_Capture") -> None:
        """In a thread; what costs time is done by a process of its own."""
        facts = capture.facts
        try:
            raw = trace_of(self._place(facts), facts.rank).with_suffix("")
            raw.parent.mkdir(parents=True, exist_ok=True)
            capture.export(raw)
            task = {"profile": asdict(facts), "trace": str(raw), "keep": self._wanted.keep}
            done = subprocess.run(
                [sys.executable, "-P", "-m", "trainer.profiling"],
                input=json.dumps(task),
                text=True,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
                raise RuntimeError(lines[-1])
            log.info("profile of steps %d…: %s", facts.first_step, raw.parent)
        except Exception as error:  # a profile is never worth a training
            self._fail(facts, error)

    def _fail(self, facts: RankProfile, error: Exception) -> None:
        log.warning("no profile of steps %d…: %s", facts.first_step, error)
        try:
            place = self._place(facts)
            place.mkdir(parents=True, exist_ok=True)
            write_profile(place, replace(facts, error=f"{type(error).__name__}: {error}"))
        except OSError as second:
            log.warning("and that could not be written: %s", second)

    def _place(self, facts: RankProfile) -> Path:
        return self._worker.run.attempt(facts.attempt).profile(facts.generation, facts.first_step)


class _Capture:
    """The recording of one profile on this rank: a step that warms up, then those that count."""

    def __init__(self, facts: RankProfile, page: WorkerPage, *, cuda: bool) -> None:
        self.facts, self._page = facts, page
        self._took: list[float] = []
        self._passed = 0
        self._region: record_function | None = None
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # its progress is nobody's news
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=facts.steps, repeat=1),
            profile_memory=True,
        )
        self._profile.start()
        page.listener = self._enter

    def between(self, seconds: float | None) -> bool:
        """A step has ended, after so many seconds. Whether it was the last."""
        self._leave()
        if self._passed and seconds is not None:
            self._took.append(seconds)
        self._passed += 1
        if self._passed > self.facts.steps:
            self._end()
            return True
        self._profile.step()
        return False

    def cut_short(self) -> bool:
        """End it before its time. Whether there is a step to be told of."""
        self._leave()
        self._end()
        return bool(self._took)

    def export(self, path: Path) -> None:
        self._profile.export_chrome_trace(str(path))

    def _end(self) -> None:
        self._page.listener = None
        # A trace of millions of events takes its time, and this rank makes no progress meanwhile: a save's patience.
        self._page.enter(Phase.SAVE)
        begun = time.perf_counter()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self._profile.stop()
        self.facts = replace(
            self.facts,
            steps=len(self._took),
            profiled_s=statistics.median(self._took) if self._took else 0.0,
            stopped_s=time.perf_counter() - begun,
        )

    def _enter(self, region: str) -> None:
        self._leave()
        self._region = record_function(PREFIX + region)
        self._region.__enter__()

    def _leave(self) -> None:
        if self._region is not None:
            self._region.__exit__(None, None, None)
            self._region = None
