"""A run's journal together with its fold, open for writing: what the holder of the run's lock knows and adds."""

from collections.abc import Callable

from contract.events import Body, RequestDone
from contract.history import History, apply, fold
from contract.journal import Journal
from contract.layout import RunDir


class Book:
    """`guard` is called before every event: an overtaken supervisor writes nothing."""

    def __init__(
        self, run: RunDir, *, clock: Callable[[], float], epoch: int, guard: Callable[[], None]
    ) -> None:
        self.run = run
        self.guard = guard
        guard()
        self._journal = Journal(run.journal, clock=clock, epoch=epoch)
        events = self._journal.replay()
        self.history: History = fold(events)
        self.answered = {event.body.id for event in events if isinstance(event.body, RequestDone)}

    @property
    def problems(self) -> list[str]:
        """Lines of the journal that could not be read."""
        return self._journal.reader.problems

    def append(self, body: Body) -> None:
        """Write one event durably; the history moves with it."""
        self.guard()
        self.history = apply(self.history, self._journal.append(body))
        if isinstance(body, RequestDone):
            self.answered.add(body.id)

    def close(self) -> None:
        self._journal.close()
