"""The page: painter and server together, as the daemon holds them."""

from collections.abc import Callable, Sequence

from contract.layout import Root
from supervisor.page.door import Door, Place
from supervisor.page.painter import Painter
from supervisor.page.server import Server
from supervisor.seen import RunSeen

__all__ = ["Page", "Place"]


class Page:
    """Serving from now on.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """

    def __init__(
        self,
        place: Place,
        root: Root,
        runs: Callable[[], Sequence[RunSeen]],
        say: Callable[[str], None],
    ) -> None:
        self._place = place
        self._painter = Painter(root, runs, say)
        try:
            self._server = Server(place, Door(place), self._painter)
        except OSError:
            self._painter.close()
            raise
        self._server.start()

    @property
    def address(self) -> str:
        """For people: where, and what they need."""
        host = f"[{self._place.host}]" if ":" in self._place.host else self._place.host
        how = (
            "the first time with ?token= and the value of CIUIC_PAGE_TOKEN"
            if self._place.token
            else "open to every user of this machine; CIUIC_PAGE_TOKEN would close it"
        )
        return f"http://{host}:{self._place.port}/ ({how})"

    def ticked(self) -> None:
        """The supervisor has ended a round."""
        self._painter.ticked()

    def close(self) -> None:
        self._server.close()
        self._painter.close()
