"""One-off orders that reach rank 0 through its page."""

import logging

from contract.page import WorkerPage

log = logging.getLogger(__name__)


class Orders:
    """Which orders are new. Each id is carried out once; ranks without orders simply never want anything."""

    def __init__(self, page: WorkerPage) -> None:
        self._page = page
        self._sequence = 0
        self._done: set[str] = set()

    def checkpoint_wanted(self) -> bool:
        """Whether a new order to save now has come since the last call. One load when nothing has changed."""
        if self._page.orders_sequence() == self._sequence:
            return False
        self._sequence, orders = self._page.orders()
        wanted = False
        for order in orders.get("orders", []):
            identity, kind = str(order.get("id", "")), order.get("kind")
            if kind == "checkpoint" and identity not in self._done:
                self._done.add(identity)
                log.info("order %s: checkpoint now", identity)
                wanted = True
        return wanted
