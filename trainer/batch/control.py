"""The controller at work: gathers the figures of all ranks, keeps the plan, remembers what did not fit."""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from contract import files
from contract.config.batch import Batch
from contract.layout import RunDir
from trainer.batch.controller import Figures, State, after_oom, after_step
from trainer.batch.measure import Gauge
from trainer.batch.plan import Plan, configured
from trainer.distributed import Ranks
from trainer.errors import NoMemoryError
from trainer.worker import Worker

log = logging.getLogger(__name__)

_KINDS = ("busy", "memory", "sample_s")


class BatchControl:
    """The plan of the coming step. The same on all ranks: all see the same figures and decide alike."""

    def __init__(self, wanted: Batch, ranks: Ranks, gauge: Gauge, remember: Callable[[int], None]) -> None:
        """`remember` keeps for later starts which micro-batch did not fit."""
        self._wanted = wanted
        self._remember = remember
        self._ranks = ranks
        self._gauge = gauge
        self._state = State(plan=configured(wanted, ranks.size))
        self._reason = ""

    @property
    def plan(self) -> Plan:
        """How the coming step is cut."""
        return self._state.plan

    @property
    def adaptive(self) -> bool:
        """Whether anybody may change the plan."""
        return self._wanted.adaptive != "off"

    def rate_factor(self) -> float:
        """By what the learning rates of the coming step are multiplied: [batch] lr_rule on a grown global batch."""
        grown = self.plan.global_batch / self._wanted.global_batch_size
        match self._wanted.lr_rule:
            case "none":
                return 1.0
            case "sqrt":
                return float(grown**0.5)
            case "linear":
                return float(grown)

    def observe(self, *, worked_s: float, forward_s: float, seconds: float) -> None:
        """Learn from a finished step, and change the plan of the next one when that is worth it."""
        if not self.adaptive:
            return
        mine = self._gauge.read(worked_s=worked_s, seconds=seconds)
        mine = replace(mine, sample_s=forward_s / self.plan.samples[self._ranks.rank])
        self._settle(after_step(self._state, self._gathered(mine), self._wanted))

    def bound(self, *, micro_batch: int, accumulation: int) -> None:
        """Plan no larger than this from now on; 0 for the micro-batch: only memory decides."""
        self._wanted = self._wanted.model_copy(
            update={"max_micro_batch_size": micro_batch, "max_accumulation_steps": accumulation}
        )

    def out_of_memory(self, error: NoMemoryError) -> None:
        """Plan the same samples in smaller portions.

        Raises:
            NoMemoryError: when there is nothing smaller, or the step cannot be redone in this process; then the
                next start knows what did not fit.
        """
        size = self.plan.micro_batch
        decision = after_oom(self._state, error.ranks, self._wanted)
        if not self.adaptive or decision is None:
            raise NoMemoryError(f"{error} (micro-batch {size})") from error
        if not error.ranks:
            self._remember(size)
            raise NoMemoryError(f"{error} (micro-batch {size}; the next start takes less)") from error
        self._settle(decision)

    def told(self) -> str:
        """Why the plan has changed since the last call, or ""."""
        reason, self._reason = self._reason, ""
        return reason

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        its = self._state
        return {
            "plan": its.plan.state(),
            "ceiling": its.ceiling,
            "seen": its.seen,
            "began": self._beginning(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the plan of the checkpoint, unless [batch] or the number of ranks has changed since."""
        if not state or not self.adaptive:
            return
        if state["began"] != self._beginning():
            log.warning(
                "batch: [batch] or the number of ranks has changed, the plan starts anew: %s", self.plan
            )
            return
        seen = tuple((size, share) for size, share in state["seen"])
        self._state = State(plan=Plan.of(state["plan"]), ceiling=state["ceiling"], seen=seen)

    def respect(self, too_large: int) -> None:
        """Earlier starts of this run were out of memory with this micro-batch (0: none was)."""
        while too_large and self.adaptive and self.plan.micro_batch >= too_large:
            decision = after_oom(self._state, [], self._wanted)
            if decision is None:
                break
            self._state = replace(decision.state, rest=0)
            log.warning(
                "batch: an earlier start was out of memory with micro-batch %d: now %s", too_large, self.plan
            )

    def close(self) -> None:
        """End the measuring."""
        self._gauge.close()

    def _beginning(self) -> dict[str, Any]:
        plan = configured(self._wanted, self._ranks.size)
        return {
            **plan.state(),
            "sequence_length": self._wanted.sequence_length,
            "adaptive": self._wanted.adaptive,
        }

    def _settle(self, decision: Any) -> None:
        self._state = decision.state
        if decision.reason:
            self._reason = decision.reason
            log.info("batch: %s", decision.reason)

    def _gathered(self, mine: Figures) -> list[Figures]:
        """Everybody's figures in one sum: each rank fills its own places, -1 stands for what was not measured."""
        size, rank = self._ranks.size, self._ranks.rank
        places = [0.0] * (size * len(_KINDS))
        for place, value in enumerate(asdict(mine).values()):
            places[rank * len(_KINDS) + place] = -1.0 if value is None else value
        found = self._ranks.sums(*places)
        rows = [found[at : at + len(_KINDS)] for at in range(0, len(found), len(_KINDS))]
        figures = [
            Figures(**{kind: value if value >= 0 else None for kind, value in zip(_KINDS, row, strict=True)})
            for row in rows
        ]
        if self._wanted.source != "prometheus":
            return figures
        return [replace(its, busy=figures[0].busy, memory=figures[0].memory) for its in figures]


def remember_oom(worker: Worker, micro_batch: int, *, length: int) -> None:
    """Tell later starts of this run that a micro-batch did not fit. Never fails: the process is about to end."""
    path = worker.run.attempt(worker.attempt).oom(worker.generation, worker.rank)
    with suppress(OSError):
        files.create_json(path, {"version": 1, "micro_batch": micro_batch, "sequence_length": length})


def too_large_before(run: RunDir, *, length: int) -> int:
    """The smallest micro-batch of samples of this length that an earlier start had no memory for; 0: none."""
    sizes = []
    for path in run.path.glob("attempts/*/oom-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_bytes())
            if found["sequence_length"] == length:
                sizes.append(int(found["micro_batch"]))
    return min(sizes, default=0)
