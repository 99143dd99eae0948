"""A run's journal together with its fold, open for writing: what the holder of the run's lock knows and adds."""

from collections.abc import Callable

from contract.events import Body, RequestDone
from contract.fold import apply, fold
from contract.history import History
from contract.journal import Journal
from contract.layout import RunDir


class JournalLostError(ValueError):
    """Nothing may rest on this journal; the message says why."""


def journal_trouble(run: RunDir, history: History) -> str:
    """Why nothing may rest on this run's journal, "" when something may. `history`: its fold.

    A run appears with its first event in it, so that a journal without one was damaged later.
    """
    name = run.journal.name
    restore = "what this run has done is not known; put the file back from a backup"
    try:
        if run.journal.stat().st_size == 0:
            return f"{name} is empty: {restore}"
    except FileNotFoundError:
        return f"{name} is missing: {restore}"
    return "" if history.run else f"{name} does not tell of the run's creation (a damaged line?): {restore}"


class Book:
    """`guard` is called before every event: an overtaken supervisor writes nothing.

    Raises:
        JournalLostError: the journal is missing, empty or without its beginning.
    """

    def __init__(
        self, run: RunDir, *, clock: Callable[[], float], epoch: int, guard: Callable[[], None]
    ) -> None:
        self.run = run
        self.guard = guard
        guard()
        if not run.journal.exists():  # opening it would make one
            raise JournalLostError(journal_trouble(run, History()))
        self._journal = Journal(run.journal, clock=clock, epoch=epoch)
        events = self._journal.replay()
        self.history: History = fold(events)
        if trouble := journal_trouble(run, self.history):
            self._journal.close()
            raise JournalLostError(trouble)
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
