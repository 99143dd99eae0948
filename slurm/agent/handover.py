"""Hot changes and one-off orders of control.json on their way to rank 0, through its page."""

from typing import Any

from contract.control import Control, OrderKind
from slurm.agent.worker import Worker

_ON_PAGE = 4  # the newest: all that control.json keeps do not fit rank 0's page


class Handover:
    """Remembers what rank 0 has on its page, and in which generation each order was given: once is enough."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._on_page: tuple[int, Any] = (0, None)

    def give(
        self, control: Control | None, first: Worker, at: tuple[int, int]
    ) -> tuple[tuple[str, ...], str]:
        """The orders that rank 0 has got by now, and why it could not get them ("" when it did).

        `at`: attempt and generation of the workers; orders for others are not theirs.
        """
        if control is None or control.at != at:
            return (), ""
        generation = at[1]
        orders = [
            {"id": order.id, "kind": order.kind, **order.args}
            for order in control.orders
            if order.kind not in OrderKind.looks()
            and self._given.setdefault(order.id, generation) == generation
        ][-_ON_PAGE:]
        wanted = (generation, {"hot": dict(control.hot), "orders": orders})
        if wanted == self._on_page or not (orders or control.hot):
            return (), ""
        self._on_page = wanted
        given = tuple(order["id"] for order in orders)
        try:
            first.page.give_orders(wanted[1])
        except ValueError as error:
            return given, str(error)
        return given, ""
