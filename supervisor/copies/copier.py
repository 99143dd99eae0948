"""One turn of the copier: the newest checkpoint to its place, old copies away, and a report of how it went."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from contract import manifest
from contract.config import RunConfig
from contract.copies.folder import FolderStore
from contract.copies.pace import Pace
from contract.copies.report import Mark, Report, read_report, write_report
from contract.copies.store import Store, StoreError, Trouble
from contract.copies.target import Kind, open_store, settings_of
from contract.layout import RunDir, parse_checkpoint_name
from contract.manifest import Bounds, Checkpoint, in_lineage, read_resumes
from supervisor.copies.send import Sender, prune

_ANY = (1 << 62, 0)  # later than every generation
_SAY_S = 1.0  # between two reports of progress


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """UTC seconds for the report, a clock that only goes on for the pace, and waiting."""

    utc: Callable[[], float]
    monotonic: Callable[[], float]
    wait: Callable[[float], object]


class Copier:
    """The copies of one kind of one run. Whoever calls holds their lock."""

    def __init__(
        self, run: RunDir, kind: Kind, config: RunConfig, clocks: Clocks, guard: Callable[[], None]
    ) -> None:
        self._run, self._kind, self._config = run, kind, config
        self._settings = settings_of(config, kind)
        self._clocks, self._guard = clocks, guard
        self._said_at = clocks.monotonic()
        self._report = _last_report(run, kind)

    def turn(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Copy what is newest now, if it is not there yet. Whether all is well; the report says what is not.

        Raises:
            OSError: not even the report can be written.
        """
        source = newest(self._run)
        if source is None:
            return True
        now = self._clocks.utc()
        self._say(
            behind_since=self._report.behind_since or now,
            sending=source.path.name,
            sent=0,
            total=sum(shard.size for shard in source.manifest.shards) if source.manifest else 0,
        )
        try:
            store = open_store(self._config, self._kind, self._run.run_id, environment)
            if isinstance(store, FolderStore) and self._report.newest and self._report.where == store.where:
                store.must_be_known()
            self._say(where=store.where)
            self._sender(store).send(source)
        except StoreError as error:
            return self._failed(error.trouble, str(error))
        except OSError as error:  # of this run directory: a place tells its own troubles
            return self._failed(Trouble.SOURCE, str(error))
        self._say(
            newest=_mark(source),
            copied_at=self._clocks.utc(),
            was_behind_since=self._report.behind_since,
            behind_since=0.0,
            trouble=None,
            text="",
            tries=0,
            sending="",
        )
        return self._tidy(store)

    def _sender(self, store: Store) -> Sender:
        rate = self._settings.bandwidth_mb_s * 1e6
        pace = Pace(rate, clock=self._clocks.monotonic, wait=self._clocks.wait)
        return Sender(store=store, pace=pace, guard=self._guard, moved=self._moved)

    def _tidy(self, store: Store) -> bool:
        """Retention there. What cannot be removed is shown, and tried again with the next copy."""
        resumes = read_resumes(self._run)

        def counts(name: str) -> bool:
            step, attempt, generation = parse_checkpoint_name(name) or (0, 0, 0)
            return in_lineage(step, (attempt, generation), resumes)

        try:
            prune(store, keep=self._settings.keep_last, counts=counts, guard=self._guard)
        except StoreError as error:
            self._say(trouble=error.trouble, text=f"old copies stay: {error}")
            return False
        return True

    def _failed(self, trouble: Trouble, text: str) -> bool:
        tries, now = self._report.tries + 1, self._clocks.utc()
        self._say(trouble=trouble, text=text, tries=tries, tried_at=now, sending="")
        return False

    def _moved(self, size: int) -> None:
        self._report = replace(self._report, sent=self._report.sent + size)
        if self._clocks.monotonic() - self._said_at >= _SAY_S:
            self._say()

    def _say(self, **changes: object) -> None:
        self._report = replace(self._report, **changes)  # type: ignore[arg-type]
        self._said_at = self._clocks.monotonic()
        write_report(self._run, self._kind, self._report)


def newest(run: RunDir) -> Checkpoint | None:
    """The newest valid checkpoint of the lineage (sizes; what is read for sending is compared as it passes)."""
    found = manifest.candidates(run, before=_ANY, bounds=Bounds(), deep=False, skipped=lambda _: None)
    return next(found, None)


def died(run: RunDir, kind: Kind, what: str, now: float) -> None:
    """The copier could not report its own end: whoever started it does."""
    report = _last_report(run, kind)
    write_report(
        run,
        kind,
        replace(
            report,
            behind_since=report.behind_since or now,
            trouble=Trouble.DIED,
            text=what,
            tries=report.tries + 1,
            tried_at=now,
            sending="",
        ),
    )


def _last_report(run: RunDir, kind: Kind) -> Report:
    try:
        return read_report(run, kind) or Report()
    except ValueError:  # damaged; what is written next is whole again
        return Report()


def _mark(source: Checkpoint) -> Mark:
    return (source.step, source.attempt, source.generation)
