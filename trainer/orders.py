"""What reaches rank 0 through its page: one-off orders, and settings that change while the run trains."""

import logging
from collections.abc import Mapping
from typing import Any

from contract.page import WorkerPage

log = logging.getLogger(__name__)


class Orders:
    """Which orders are new. Each id is carried out once; ranks without orders simply never want anything."""

    def __init__(self, page: WorkerPage) -> None:
        self._page = page
        self._sequence = 0
        self._done: set[str] = set()
        self._hot: Mapping[str, Any] = {}
        self._save = False
        self._profiles: list[dict[str, Any]] = []

    def checkpoint_wanted(self) -> bool:
        """Whether an order to save now has come since the last call. One load when nothing has come."""
        self._look()
        wanted, self._save = self._save, False
        return wanted

    def hot(self) -> Mapping[str, Any]:
        """The settings that were changed while the run trains, as this rank has heard of them."""
        self._look()
        return self._hot

    @property
    def profiles_wait(self) -> bool:
        """Whether a profile is ordered that `profiles` has not given out yet."""
        self._look()
        return bool(self._profiles)

    def profiles(self) -> list[dict[str, Any]]:
        """The profiles that were ordered since the last call."""
        self._look()
        found, self._profiles = self._profiles, []
        return found

    def _look(self) -> None:
        if self._page.orders_sequence() == self._sequence:
            return
        self._sequence, found = self._page.orders()
        hot = found.get("hot")
        self._hot = hot if isinstance(hot, dict) else {}
        for order in found.get("orders", []):
            identity, kind = str(order.get("id", "")), order.get("kind")
            if identity in self._done:
                continue
            self._done.add(identity)
            if kind == "checkpoint":
                log.info("order %s: checkpoint now", identity)
                self._save = True
            elif kind == "profile":
                self._profiles.append(order)
