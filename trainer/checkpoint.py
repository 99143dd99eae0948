"""Saving and loading. A checkpoint is complete or it does not exist: the manifest is written last (design rule 11).

The loop stands still while the state is copied into host memory. A thread writes the copy, agrees with those of the
other ranks through a channel of their own, and rank 0's publishes. The loop learns of the end at a step boundary.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch

from contract import config as configuration
from contract import files
from contract.config import RunConfig
from contract.layout import checkpoint_name
from contract.manifest import Manifest, Shard, remove
from contract.page import WorkerPage
from contract.retention import rule_of
from contract.states import Phase
from trainer.background import Background
from trainer.distributed import Ranks
from trainer.engine import restore_clipping
from trainer.errors import RefusedError, SaveError
from trainer.groups import Group, Layout, follow_config
from trainer.model import fingerprint
from trainer.origin import CONFIG_NAME, code_version, config_digest
from trainer.progress import Progress
from trainer.publish import FencedError, Place, prune, publish
from trainer.reshape.carry import Before, carry_into
from trainer.reshape.places import form
from trainer.resume import ResumePoint
from trainer.rng import fresh_random_state, random_state, restore_random_state
from trainer.shards import ShardWriter
from trainer.step import Wishes
from trainer.worker import Worker

log = logging.getLogger(__name__)

_LOOK_S = 0.2  # between two looks at a writer that is waited for
_FLOORS = 4  # as the supervisor allows for storage, see supervisor/core/limits.py


class Kept(Protocol):
    """A part of the loop with a state of its own, which must go on where it was."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep: the same on all ranks."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Empty: the checkpoint is older than this state."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What became of a save, the same on every rank. `error` "" when it counts; `fenced`: we are a zombie."""

    name: str
    error: str = ""
    fenced: bool = False
    told: str = ""


class Checkpoints:
    """The checkpoints that this generation writes and the one that it starts from."""

    def __init__(self, config: RunConfig, worker: Worker, ranks: Ranks, page: WorkerPage) -> None:
        self._config = config
        self._wanted = config.checkpoint
        self._worker = worker
        self._ranks = ranks
        self._page = page
        self._phase = Phase.SAVE
        self._step = 0
        self._pieces = 0
        self._writer = ShardWriter(ranks.device, self._moved, copies=config.checkpoint.background)
        self._layout = Layout.BY_LAYER
        self._kept: Mapping[str, Kept] = {}
        self._skip_windows: tuple[tuple[int, int], ...] = ()
        self._job: Background[Saved] | None = None
        self._proven = False  # a save has been written whole: its longest standstill says what is usual here
        self._stuck_told = False

    def attach(
        self, engine: Any, kept: Mapping[str, Kept], *, skip_windows: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Make the engine write and read through our shard writer; `kept` is saved and restored beside it."""
        engine.checkpoint_engine = self._writer
        # DeepSpeed copies scripts beside the checkpoints there, in the middle of its save and outside our errors.
        engine._copy_recovery_script = lambda _path: None  # noqa: SLF001
        self._kept = kept
        self._skip_windows = skip_windows
        self._writer.place = Place(self._worker.run.checkpoints)

    def layout(self, point: ResumePoint) -> Layout:
        """The groups with which the engine must be built: under AdamW those of the resume point's checkpoint."""
        if self._config.optimizer.name == "muon":
            self._layout = Layout.BY_MATRIX
        elif point.checkpoint and _layout_of(self._own(point)) is Layout.BY_DECAY:
            self._layout = Layout.BY_DECAY
            log.warning("%s knows no rates by layer: every layer takes the last one's", point.checkpoint)
        return self._layout

    # --- saving

    def wishes(self) -> Wishes:
        """What this rank has to tell of its save at the coming step."""
        return Wishes(
            saving=self._job is not None and not self._job.done,
            stuck=self._writer.standstill_s > self._patience_s(),
        )

    def look(self, agreed: Wishes) -> None:
        """Learn what has become of the save in flight, as soon as that is the same on all ranks.

        Raises:
            SaveError: on all ranks, when it failed and the policy is to stop.
            RefusedError: on all ranks, when a later generation has taken over.
        """
        if agreed.stuck and not self._stuck_told:
            self._stuck()
        if self._job is not None and not agreed.saving:
            self._settle(must=False)

    def save(
        self,
        engine: Any,
        progress: Progress,
        agreed: Wishes,
        *,
        loss: float,
        val_loss: float | None,
        must: bool,
    ) -> bool:
        """Save this step. Every rank must call it. False: left out, because the one before is still being written.

        With `must` it is on disk when this returns, and an error is raised whatever the policy.

        Raises:
            SaveError, RefusedError: see `look`; of this save or of the one before.
        """
        started = time.perf_counter()
        self._phase, self._step = Phase.SAVE, progress.step
        name = checkpoint_name(progress.step, self._worker.attempt, self._worker.generation)
        if self._job is not None:
            if agreed.saving and not must and not agreed.save and self._wanted.while_saving == "skip":
                log.warning("%s is left out: the save before it is still being written", name)
                return False
            self._wait()
            self._settle(must=False)
        self._moved()
        self._take_over(engine, progress, name)
        log.info("%s: training stood still for %.2f s", name, time.perf_counter() - started)
        content = self._content(progress, loss=loss, val_loss=val_loss)
        self._job = Background(partial(self._write, name, content))
        if must or not self._wanted.background:
            self._wait()
            self._settle(must=must)
        return True

    def drain(self) -> None:
        """Before an agreed end by an error: give the save in flight the time that it needs; it may be the last good one."""
        if self._job is None or self._ranks.beside_hangs:
            return
        try:
            self._wait()
            self._settle(must=False)
        except StuckWriteError:  # the others wait for us: this process must end
            raise
        except Exception:  # the error that ends us is the one to be told
            log.exception("the save in flight failed")

    def _take_over(self, engine: Any, progress: Progress, name: str) -> None:
        """Everything of this rank, copied where it must be."""
        root = self._worker.run.checkpoints
        self._writer.start(root / name)
        engine.save_checkpoint(str(root), tag=name, save_latest=False)
        self._writer.save(self._own_state(engine, progress), str(root / name / own_file(self._ranks.rank)))
        if self._worker.leads:
            self._writer.save(configuration.dump(self._config).encode(), str(root / name / CONFIG_NAME))

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

    def _content(self, progress: Progress, *, loss: float, val_loss: float | None) -> Manifest:
        return Manifest(
            run=self._worker.run.run_id,
            step=progress.step,
            attempt=self._worker.attempt,
            generation=self._worker.generation,
            world_size=self._ranks.size,
            tokens=progress.tokens,
            position=progress.position,
            shards=(),
            config_digest=config_digest(self._config),
            code=code_version() if self._worker.leads else "",
            skip_windows=self._skip_windows,
            val_loss=val_loss if val_loss is not None and math.isfinite(val_loss) else None,
            facts={"loss": loss if math.isfinite(loss) else None, "torch": torch.__version__},
        )

    def _write(self, name: str, content: Manifest) -> Saved:
        """In the thread of every rank: write, agree, publish. The answer is rank 0's."""
        started = time.perf_counter()
        found = self._ranks.beside.gather(self._writer.write())
        saved = None
        if self._worker.leads:
            errors = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(found) if error]
            shards = [shard for shards, _ in found for shard in shards]
            saved = self._given_up(name, errors) if errors else self._publish(name, content, shards, started)
        answer: Saved = self._ranks.beside.from_leader(saved)
        return answer

    def _given_up(self, name: str, errors: list[str]) -> Saved:
        try:
            remove(self._worker.run.checkpoints / name)
        except OSError as error:
            log.warning("what was written of %s could not be removed: %s", name, error)
        return Saved(name=name, error=f"{name} could not be written; {'; '.join(errors[:8])}")

    def _publish(self, name: str, content: Manifest, shards: list[Shard], started: float) -> Saved:
        """Rank 0: the manifest, then room for the next save."""
        run = self._worker.run
        whole = replace(content, shards=tuple(shards), saved_at=time.time())
        try:
            publish(run, whole)
        except FencedError as error:
            return Saved(name=name, error=str(error), fenced=True)
        except OSError as error:
            return self._given_up(name, [f"manifest: {error}"])
        pruned = prune(run, rule_of(self._wanted), at=(self._worker.attempt, self._worker.generation))
        if pruned.problem:
            log.warning("old checkpoints could not be removed: %s", pruned.problem)
        seconds = time.perf_counter() - started
        return Saved(name=name, told=f"{whole.size / 1e6:.1f} MB in {seconds:.2f} s")

    def _wait(self) -> None:
        """Until the save in flight is through, showing that its writing moves.

        Raises:
            SaveError: on this rank alone, which names it as the cause: its writing stands still.
        """
        assert self._job is not None
        self._phase = Phase.SAVE
        while not self._job.wait(_LOOK_S):
            if self._writer.standstill_s > self._patience_s():
                raise StuckWriteError(self._standstill())
            self._moved()

    def _settle(self, *, must: bool) -> None:
        assert self._job is not None
        job, self._job = self._job, None
        saved = job.result()
        self._stuck_told = False
        if saved.fenced:
            raise RefusedError(saved.error)
        if self._worker.leads:
            self._page.report_save(saved.error)
        if not saved.error:
            self._proven = True
            self._remember(saved.name)
            log.info("saved %s: %s", saved.name, saved.told)
            return
        if must or self._wanted.on_error == "stop":
            raise SaveError(saved.error)
        log.error("%s; training goes on ([checkpoint] on_error)", saved.error)

    def _stuck(self) -> None:
        """A rank's writing stands still, all know it. It may still come to its end, and then counts."""
        self._stuck_told = True
        mine = self._writer.standstill_s > self._patience_s()
        told = [text for text in self._ranks.gather(self._standstill() if mine else "") if text]
        error = "; ".join(told[:8]) or "a checkpoint's writing stood still for long"
        if self._wanted.on_error == "stop":
            self._ranks.beside_hangs = True
            raise SaveError(error)
        if self._worker.leads:
            self._page.report_save(error)
        log.error("%s; training goes on ([checkpoint] on_error)", error)

    def _standstill(self) -> str:
        return (
            f"rank {self._ranks.rank}: the file system does not answer: writing a checkpoint has stood still "
            f"for {self._writer.standstill_s:.0f} s"
        )

    def _patience_s(self) -> float:
        """How long a write may stand still: the ceiling until a save has shown what is usual, see design rule 8."""
        monitor = self._config.monitor
        if not self._proven:
            return monitor.save_s
        learned = max(_FLOORS * monitor.hang_floor_s, monitor.hang_factor * self._writer.longest_s)
        return min(monitor.save_s, learned)

    # --- loading

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
            layout=_layout_of(own),
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
        self._remember(point.checkpoint)
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

    def _remember(self, name: str) -> None:
        if self._writer.place is not None:
            self._writer.place.remember(self._worker.run.checkpoints / name)

    def _moved(self) -> None:
        """A piece more has passed: progress within a save or a load."""
        self._pieces += 1
        self._page.mark(step=self._step, phase=self._phase, micro_step=self._pieces)


class StuckWriteError(OSError):
    """This rank's file system does not answer. Raised by this rank alone: the others wait for it."""


def _layout_of(own: Mapping[str, Any]) -> Layout:
    """The optimizer's groups in a checkpoint with this state of a rank."""
    return Layout(own.get("groups", Layout.BY_DECAY))


def own_file(rank: int) -> str:
    """Name of the file with what belongs to one rank alone."""
    return f"rank-{rank:05d}.pt"
