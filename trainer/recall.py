"""Bringing checkpoints back from their copies (the mirror, the backup) when they are missing or damaged here."""

import logging
import os
import time
from collections.abc import Iterator

from contract.config import RunConfig
from contract.copies.fetch import fetch
from contract.copies.pace import Pace
from contract.copies.report import read_report
from contract.copies.store import Store, StoreError, Trouble
from contract.copies.target import Kind, open_store, settings_of, wanted
from contract.layout import parse_checkpoint_name
from contract.manifest import Checkpoint, ManifestError, in_lineage, read_resumes
from trainer.worker import Worker

log = logging.getLogger(__name__)


class Recall:
    """Rank 0's way to the copies.

    `restored_from`: the place whose copy was brought back, "" as long as none was. `why_not`: what kept it from that,
    for a refusal's text.
    """

    def __init__(self, config: RunConfig, worker: Worker) -> None:
        self._config, self._run = config, worker.run
        self._through = 0
        self.restored_from = self.why_not = ""

    def moved(self) -> int:
        """KiB that are through: compared here, or fetched."""
        return self._through >> 10

    def newer_than(self, here: Checkpoint | None, worker: Worker, *, damaged: bool) -> Checkpoint | None:
        """A newer valid checkpoint than `here`, brought back; None when there is none.

        The places are asked only when something is amiss: nothing valid here though something was expected,
        something damaged here, or a report of a newer copy. So a place that does not answer delays no usual start.
        """
        for kind in wanted(self._config):
            if not self._worth_asking(kind, here, worker, damaged=damaged):
                continue
            try:
                store = open_store(self._config, kind, self._run.run_id, os.environ)
                found = self._first(kind, store, here, worker)
            except (StoreError, OSError) as error:
                self._pass_over(f"{kind}: {error}")
                continue
            if found is not None:
                return found
        return None

    def _worth_asking(self, kind: Kind, here: Checkpoint | None, worker: Worker, *, damaged: bool) -> bool:
        if damaged or (here is None and worker.bounds.min_step > 0):
            return True
        try:
            report = read_report(self._run, kind)
        except (OSError, ValueError) as error:
            self._pass_over(f"{kind}: {error}")
            return here is None
        if report is None or report.newest is None:
            return False
        step, attempt, generation = report.newest
        if not worker.bounds.allow(step) or (here is not None and step <= here.step):
            return False
        return in_lineage(step, (attempt, generation), read_resumes(self._run))

    def _first(self, kind: Kind, store: Store, here: Checkpoint | None, worker: Worker) -> Checkpoint | None:
        rate = settings_of(self._config, kind).bandwidth_mb_s * 1e6
        pace = Pace(rate, clock=time.monotonic, wait=time.sleep)
        for name in self._names(store, here, worker):
            started = time.perf_counter()
            try:
                found = fetch(self._run, name, store, moved=self._count, pace=pace)
            except ManifestError as error:
                self._pass_over(f"{kind}: {name}: {error}")
                continue
            except StoreError as error:
                if error.trouble not in {Trouble.CORRUPT, Trouble.MISSING}:
                    raise  # the place does not answer: it would not for an older one either
                self._pass_over(f"{kind}: {error}")
                continue
            log.warning(
                "%s brought back from %s in %.1f s: %d files from there, %d were right here",
                name,
                store.where,
                time.perf_counter() - started,
                found.fetched,
                found.kept,
            )
            if found.checkpoint.valid:
                self.restored_from = store.where
                return found.checkpoint
            self._pass_over(f"{name}: {found.checkpoint.reason}")
        return None

    def _names(self, store: Store, here: Checkpoint | None, worker: Worker) -> Iterator[str]:
        """Copies that this generation may resume from, newest first, as `manifest.candidates` chooses here."""
        before = (worker.attempt, worker.generation)
        resumes = {key: step for key, step in read_resumes(self._run).items() if key < before}
        named = sorted(
            ((parse_checkpoint_name(name) or (0, 0, 0), name) for name in store.names()), reverse=True
        )
        for (step, attempt, generation), name in named:
            writer = (attempt, generation)
            if not worker.bounds.allow(step) or (attempt and writer >= before):
                continue
            if here is not None and (step, *writer) <= (here.step, here.attempt, here.generation):
                continue
            if in_lineage(step, writer, resumes):
                yield name

    def _count(self, size: int) -> None:
        self._through += size

    def _pass_over(self, why: str) -> None:
        log.warning("no copy was brought back from the %s", why)
        self.why_not += f"; {why}"
