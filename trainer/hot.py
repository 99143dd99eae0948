"""Settings that change while the run trains: rank 0 hears of them, all ranks take them over before the same step."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.config import RunConfig
from contract.hot import Hot, told
from trainer.batch.control import BatchControl
from trainer.distributed import Ranks
from trainer.engine import restore_clipping
from trainer.log import set_level
from trainer.norms import Watch
from trainer.orders import Orders
from trainer.profiling.capture import Profiler

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class HotSettings:
    """Those in force on this rank; the same on all. `rate_factor` multiplies every learning rate."""

    config: RunConfig
    ranks: Ranks
    engine: Any
    watch: Watch
    control: BatchControl
    orders: Orders
    profiler: Profiler
    rate_factor: float = 1.0
    _now: Mapping[str, Any] = field(default_factory=dict)

    def wanted(self) -> bool:
        """Whether this rank has heard of others than those in force. Only rank 0 ever does."""
        return self.orders.hot() != self._now or self.orders.profiles_wait

    def take_over(self, step: int) -> None:
        """Bring rank 0's to all ranks, for the steps after this one. All ranks call it at the same boundary."""
        heard = dict(self.orders.hot()), self.orders.profiles()
        found: Mapping[str, Any]
        found, profiles = self.ranks.from_leader(heard)
        for order in profiles:
            self.profiler.ask(order)
        if found != self._now:
            self._apply(found, step)

    def _apply(self, found: Mapping[str, Any], step: int) -> None:
        self._now = found
        self.rate_factor = float(found.get(Hot.LR_FACTOR, 1.0))
        clipping = float(found.get(Hot.CLIPPING, self.config.optimizer.gradient_clipping))
        self.watch.clipping = clipping
        restore_clipping(self.engine, clipping)
        self.control.bound(
            micro_batch=int(found.get(Hot.MAX_MICRO_BATCH, self.config.batch.max_micro_batch_size)),
            accumulation=int(found.get(Hot.MAX_ACCUMULATION, self.config.batch.max_accumulation_steps)),
        )
        set_level(str(found.get(Hot.LOG_LEVEL, "")), self.ranks.rank)
        log.info("from step %d on: %s", step + 1, told(found))
