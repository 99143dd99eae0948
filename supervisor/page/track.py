"""How each node has fared lately: the worst of its ranks, a column every few seconds. Moves with the node, or with the rank?"""

from collections import OrderedDict
from typing import Any

from supervisor.page.ranks import worst_of_nodes
from supervisor.seen import Shown

_COLUMNS = 120


class Track:
    """The newest columns of one run, as long as its nodes stay the same."""

    def __init__(self) -> None:
        self._nodes: tuple[str, ...] = ()
        self._columns: OrderedDict[str, str] = OrderedDict()

    def add(self, shown: Shown) -> None:
        """One look. One without workers is a column without letters."""
        nodes, letters = worst_of_nodes(shown.observation, shown.verdict, shown.config)
        if nodes and nodes != self._nodes:
            self._nodes = nodes
            self._columns.clear()
        if self._nodes:
            self._columns[str(int(shown.at))] = letters if nodes else ""
        while len(self._columns) > _COLUMNS:
            self._columns.popitem(last=False)

    def picture(self) -> dict[str, Any]:
        return {"nodes": list(self._nodes), "columns": dict(self._columns)}
