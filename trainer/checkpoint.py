"""Saving and loading. A checkpoint is complete or it does not exist: the manifest is written last (design rule 11)."""

import logging
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

from contract import files, manifest
from contract.config import RunConfig
from contract.layout import checkpoint_name
from contract.manifest import Bounds, Manifest, Shard
from contract.page import WorkerPage
from contract.states import Phase
from trainer.distributed import Ranks
from trainer.engine import restore_clipping
from trainer.errors import SaveError
from trainer.groups import Group, Layout, follow_config
from trainer.model import fingerprint
from trainer.progress import Progress
from trainer.reshape.carry import Before, carry_into
from trainer.reshape.places import form
from trainer.resume import ResumePoint
from trainer.rng import fresh_random_state, random_state, restore_random_state
from trainer.shards import ShardWriter
from trainer.worker import Worker

log = logging.getLogger(__name__)


class Kept(Protocol):
    """A part of the loop with a state of its own, which must go on where it was."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep: the same on all ranks."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Empty: the checkpoint is older than this state."""


class Checkpoints:
    """The checkpoints that this generation writes and the one that it starts from."""

    def __init__(
        self, config: RunConfig, worker: Worker, ranks: Ranks, page: WorkerPage, *, config_digest: str
    ) -> None:
        self._config = config
        self._worker = worker
        self._ranks = ranks
        self._page = page
        self._digest = config_digest
        self._phase = Phase.SAVE
        self._step = 0
        self._pieces = 0
        self._writer = ShardWriter(self._moved)
        self._layout = Layout.BY_LAYER
        self._kept: Mapping[str, Kept] = {}

    def attach(self, engine: Any, kept: Mapping[str, Kept]) -> None:
        """Make the engine write and read through our shard writer; `kept` is saved and restored beside it."""
        engine.checkpoint_engine = self._writer
        self._kept = kept

    def layout(self, point: ResumePoint) -> Layout:
        """The optimizer's groups in the checkpoint of the resume point; its engine must be built with the same."""
        if point.checkpoint:
            self._layout = Layout(self._own(point).get("groups", Layout.BY_DECAY))
        if self._layout is not Layout.BY_LAYER:
            log.warning("%s knows no rates by layer: every layer takes the last one's", point.checkpoint)
        return self._layout

    def save(self, engine: Any, progress: Progress, *, loss: float) -> None:
        """Write a checkpoint of this step. Every rank must call it.

        Raises:
            SaveError: on all ranks, when any rank could not write; the half-written directory is gone.
        """
        started = time.perf_counter()
        self._phase, self._step = Phase.SAVE, progress.step
        self._moved()
        root = self._worker.run.checkpoints
        name = checkpoint_name(progress.step, self._worker.attempt, self._worker.generation)
        self._writer.start(root / name)
        engine.save_checkpoint(str(root), tag=name, save_latest=False)
        self._writer.save(self._own_state(engine, progress), str(root / name / own_file(self._ranks.rank)))
        shards = self._agreed(root / name)
        error = self._publish(root / name, shards, progress, loss) if self._worker.leads else ""
        if error := self._ranks.from_leader(error):
            raise SaveError(error)
        log.info("saved %s in %.2f s", name, time.perf_counter() - started)

    def load(self, engine: Any, point: ResumePoint, groups: Sequence[Group]) -> Progress:
        """Bring engine and generators to the resume point; returns the progress there.

        Raises:
            ConfigError: the checkpoint is of another model, and [checkpoint] model_change refuses that.
            ReadError: on all ranks, when the checkpoint has another shape and does not hold what it should.
            RuntimeError: DeepSpeed could not load what the manifest promised.
        """
        self._phase, self._step = Phase.LOAD, point.progress.step
        self._moved()
        if not point.checkpoint:
            return point.progress
        own = self._own(point)
        before = Before(
            directory=self._worker.run.checkpoints / point.checkpoint,
            ranks=point.ranks,
            form=own.get("form", form(engine)),
            parameters=own["parameters"],
            layout=self._layout,
        )
        if before.fits(engine, self._ranks.size):
            self._load_same(engine, point, groups)
        else:
            self._carry_over(engine, before)
        if point.ranks == self._ranks.size:
            restore_random_state(own["random"], self._ranks.device)
        else:
            fresh_random_state(
                self._ranks.device,
                seed=self._config.run.seed,
                step=point.progress.step,
                rank=self._ranks.rank,
            )
        for name, part in self._kept.items():
            part.restore(own.get("kept", {}).get(name, {}))
        return Progress(**own["progress"])

    def _load_same(self, engine: Any, point: ResumePoint, groups: Sequence[Group]) -> None:
        """By DeepSpeed itself: the checkpoint has the engine's own shape."""
        path, _ = engine.load_checkpoint(str(self._worker.run.checkpoints), tag=point.checkpoint)
        missing = self._ranks.gather(path is None)
        if any(missing):
            raise RuntimeError(f"{point.checkpoint}: DeepSpeed found nothing to load on ranks {missing}")
        restore_clipping(engine, self._config.optimizer.gradient_clipping)
        follow_config(engine, groups, self._config.optimizer)

    def _carry_over(self, engine: Any, before: Before) -> None:
        """Parameter by parameter: written by other ranks, another ZeRO stage, or of another model."""
        started = time.perf_counter()
        allowed = self._config.checkpoint.model_change == "allow"
        change = carry_into(engine, before, self._ranks, allowed=allowed, moved=self._moved)
        if self._worker.leads and not change.none:
            log.warning("%s is of another model: %s", before.directory.name, change.sentence())
            attempt = self._worker.run.attempt(self._worker.attempt)
            files.create_json(attempt.model_change(self._worker.generation), change.facts())
        log.info(
            "%s carried over from %d ranks, %s, to %d, %s, in %.2f s",
            before.directory.name,
            before.ranks,
            before.form,
            self._ranks.size,
            form(engine),
            time.perf_counter() - started,
        )

    def _own(self, point: ResumePoint) -> dict[str, Any]:
        """What this rank kept for itself in the checkpoint of the resume point; rank 0's when there were others."""
        rank = self._ranks.rank if point.ranks == self._ranks.size else 0
        path = self._worker.run.checkpoints / point.checkpoint / own_file(rank)
        found: dict[str, Any] = self._writer.load(str(path))
        return found

    def _moved(self) -> None:
        """A piece more has passed: progress within a save or a load."""
        self._pieces += 1
        self._page.mark(step=self._step, phase=self._phase, micro_step=self._pieces)

    def _own_state(self, engine: Any, progress: Progress) -> dict[str, Any]:
        """What each rank must keep for itself: DeepSpeed's client state gives every rank that of rank 0."""
        return {
            "progress": asdict(progress),
            "random": random_state(self._ranks.device),
            "parameters": fingerprint(engine.module),
            "form": form(engine),
            "architecture": engine.module.config.to_dict(),
            "groups": self._layout.value,
            "kept": {name: part.state() for name, part in self._kept.items()},
        }

    def _agreed(self, directory: Path) -> list[Shard]:
        """All ranks' files, once every rank has written its own durably."""
        found = self._ranks.gather(self._writer.finish())
        errors = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(found) if error]
        if errors:
            if self._worker.leads:
                shutil.rmtree(directory, ignore_errors=True)
            raise SaveError(f"{directory.name} could not be written; {'; '.join(errors)}")
        return [shard for shards, _ in found for shard in shards]

    def _publish(self, directory: Path, shards: list[Shard], progress: Progress, loss: float) -> str:
        """Rank 0: the manifest, then room for the next save. Returns what went wrong or ""."""
        try:
            files.sync_directory(directory.parent)
            manifest.publish(
                directory,
                Manifest(
                    run=self._worker.run.run_id,
                    step=progress.step,
                    attempt=self._worker.attempt,
                    generation=self._worker.generation,
                    world_size=self._ranks.size,
                    tokens=progress.tokens,
                    position=progress.position,
                    shards=tuple(shards),
                    config_digest=self._digest,
                    facts={"loss": loss if math.isfinite(loss) else None, "torch": torch.__version__},
                ),
            )
            self._prune()
        except OSError as error:
            return f"{directory.name}: {error}"
        return ""

    def _prune(self) -> None:
        """Remove what is older than the newest `keep_last` valid checkpoints of our lineage, manifest first."""
        run, at = self._worker.run, (self._worker.attempt, self._worker.generation)
        valid = manifest.candidates(
            run, before=(at[0], at[1] + 1), bounds=Bounds(), deep=False, skipped=lambda _: None
        )
        kept = [
            checkpoint.path
            for _, checkpoint in zip(range(self._config.checkpoint.keep_last), valid, strict=False)
        ]
        if len(kept) < self._config.checkpoint.keep_last:
            return
        everything = manifest.directories(run)
        for directory in everything[everything.index(kept[-1]) + 1 :]:
            manifest.retire(directory)
            shutil.rmtree(directory, ignore_errors=True)


def own_file(rank: int) -> str:
    """Name of the file with what belongs to one rank alone."""
    return f"rank-{rank:05d}.pt"
