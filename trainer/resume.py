"""Where a generation starts. Chosen by rank 0 when the generation starts, never earlier (design rule 12)."""

import logging
import re
from dataclasses import asdict, dataclass, replace

from contract import files, manifest
from contract.config import RunConfig
from contract.manifest import Checkpoint, Manifest
from contract.page import WorkerPage
from trainer.distributed import Ranks
from trainer.errors import RefusedError
from trainer.origin import CONFIG_NAME, changes, code_version
from trainer.progress import Progress
from trainer.recall import Recall
from trainer.waiting import together
from trainer.worker import UNKNOWN_GENERATION, Worker

log = logging.getLogger(__name__)
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """The decision of rank 0 for all. `checkpoint` is a directory's name, "" for a fresh start.

    `ranks` is how many wrote it. `skip_windows`: the sampler positions that the run had jumped over, or was to, then.
    """

    generation: int
    checkpoint: str
    progress: Progress
    ranks: int = 0
    skip_windows: tuple[tuple[int, int], ...] = ()


def agree_on_resume(
    config: RunConfig, worker: Worker, ranks: Ranks, page: WorkerPage
) -> tuple[Worker, ResumePoint]:
    """The worker (its generation known now) and the resume point, recorded durably before anybody trains.

    What is missing or damaged here is brought back from a copy first. However long that takes, every rank marks
    that it moves on.

    Raises:
        RefusedError: on all ranks, when this generation must not train.
    """
    recall = Recall(config, worker)

    def decided() -> ResumePoint | RefusedError:
        try:
            return _decide(worker, recall)
        except RefusedError as error:
            return error

    answer = together(ranks, page, decided, recall.moved)
    if isinstance(answer, Exception):
        raise answer
    return replace(worker, generation=answer.generation), answer


def _decide(worker: Worker, recall: Recall) -> ResumePoint:
    if not worker.supervised:
        worker = _next_generation(worker)
    found = newest_usable(worker, recall)
    if found is None and worker.bounds.min_step > 0:
        raise RefusedError(
            f"no valid checkpoint with step {_range(worker)} under {worker.run.checkpoints}, and one was expected; "
            f"not starting from step 0{recall.why_not}"
        )
    point = _point(worker, found)
    record = {
        "version": _VERSION,
        "path": point.checkpoint,
        "attempt": worker.attempt,
        "generation": worker.generation,
        "ranks": point.ranks,
        "restored_from": recall.restored_from,
        **asdict(point.progress),
    }
    path = worker.run.attempt(worker.attempt).resume(worker.generation)
    try:
        created = files.create_json(path, record)
    except FileNotFoundError:
        raise RefusedError(
            f"{path.parent} is not there: the run directory vanished or is not mounted"
        ) from None
    if not created:
        raise RefusedError(f"{path} exists: this generation has been started before (fenced)")
    worker.run.checkpoints.mkdir(exist_ok=True)
    log.info("starting from %s", point.checkpoint or "step 0")
    return point


def newest_usable(worker: Worker, recall: Recall) -> Checkpoint | None:
    """The newest valid checkpoint of the lineage within the bounds; tells why others are passed over.

    A newer one that is damaged or missing here, and has a copy, is brought back.
    """
    damaged: list[Checkpoint] = []

    def skipped(checkpoint: Checkpoint) -> None:
        log.warning("checkpoint %s skipped: %s", checkpoint.path.name, checkpoint.reason)
        if (checkpoint.path / manifest.NAME).exists():  # else a save that did not finish: nobody has a copy
            damaged.append(checkpoint)

    found = manifest.candidates(
        worker.run,
        before=(worker.attempt, worker.generation),
        bounds=worker.bounds,
        deep=True,
        skipped=skipped,
    )
    here = next(found, None)
    return recall.newer_than(here, worker, damaged=bool(damaged)) or here


def _point(worker: Worker, found: Checkpoint | None) -> ResumePoint:
    if found is None:
        return ResumePoint(generation=worker.generation, checkpoint="", progress=Progress())
    what = found.manifest
    assert isinstance(what, Manifest)
    if what.world_size != worker.world_size:
        log.warning(
            "%s was written by %d ranks, %d read it", found.path.name, what.world_size, worker.world_size
        )
    progress = Progress(step=what.step, tokens=what.tokens, position=what.position)
    return ResumePoint(
        generation=worker.generation,
        checkpoint=found.path.name,
        progress=progress,
        ranks=what.world_size,
        skip_windows=what.skip_windows,
    )


def tell_changes(worker: Worker, point: ResumePoint, config: RunConfig) -> None:
    """Say what is not as it was when the checkpoint was written. Nothing is refused for it here."""
    if not worker.leads or not point.checkpoint:
        return
    directory = worker.run.checkpoints / point.checkpoint
    what = manifest.examine(directory, deep=False).manifest
    if what is not None and what.code not in {"", code_version()}:
        log.warning("other code than in %s: %s, was %s", point.checkpoint, code_version(), what.code)
    before = files.read_bytes(directory / CONFIG_NAME)
    for line in changes(before.decode(), config) if before is not None else []:
        log.warning("setting changed since %s: %s", point.checkpoint, line)
    new = sorted({*worker.skip_windows} - {*point.skip_windows})
    if new:
        log.info("jumped from now on: sampler positions %s", ", ".join(f"[{a}, {b})" for a, b in new))


def _next_generation(worker: Worker) -> Worker:
    """Without an agent nobody numbers the starts: count the records of earlier ones."""
    attempt = worker.run.attempt(worker.attempt)
    attempt.path.mkdir(parents=True, exist_ok=True)
    numbers = [
        int(m[1]) for path in attempt.path.iterdir() if (m := re.match(r"resume-g(\d+)\.json\Z", path.name))
    ]
    return replace(worker, generation=max(numbers, default=UNKNOWN_GENERATION) + 1)


def _range(worker: Worker) -> str:
    bounds = worker.bounds
    return (
        f"of at least {bounds.min_step}"
        if bounds.max_step < 0
        else f"in [{bounds.min_step}, {bounds.max_step}]"
    )
