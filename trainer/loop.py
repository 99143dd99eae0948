"""The training loop. `train` is the whole story of a run; each line's detail has a module of its own."""

import time
from dataclasses import dataclass, replace
from typing import Any

from contract.config import RunConfig
from contract.page import WorkerPage
from contract.sampling import Taken
from contract.states import ExitCode, Phase
from contract.stop import StopFlag
from trainer.batch.clock import Clock, clock_for
from trainer.batch.control import BatchControl
from trainer.cadence import Cadence
from trainer.checkpoint import Checkpoints
from trainer.data.batches import Batches, Window
from trainer.distributed import Ranks
from trainer.engine import lower_scale
from trainer.errors import NoMemoryError, TrainerError
from trainer.evaluate import Evaluation
from trainer.guard import Guard, where
from trainer.hot import HotSettings
from trainer.metrics import Metrics
from trainer.norms import Watch, weights_are_finite
from trainer.orders import Orders
from trainer.profiling.capture import Profiler
from trainer.progress import Progress
from trainer.routers import Routers
from trainer.schedule import Rates
from trainer.step import Instruments, Outcome, Wishes, refuse_broken_weights, take_step


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything a run trains with."""

    config: RunConfig
    ranks: Ranks
    engine: Any
    batches: Batches
    control: BatchControl
    rates: Rates
    guard: Guard
    routers: Routers
    watch: Watch
    evaluation: Evaluation | None
    checkpoints: Checkpoints
    cadence: Cadence
    metrics: Metrics
    page: WorkerPage
    stop: StopFlag
    orders: Orders
    hot: HotSettings
    profiler: Profiler

    def train(self, progress: Progress) -> ExitCode:
        """Train from `progress` to the run's target, or until all ranks agree to save and leave."""
        try:
            code = self._train(progress)
        except TrainerError:  # agreed by all ranks: a save in flight can still come to its end
            self.checkpoints.drain()
            raise
        self.profiler.close()
        return code

    def _train(self, progress: Progress) -> ExitCode:
        self.hot.take_over(progress.step)
        clock = clock_for(self.ranks.device, wanted=self.control.adaptive)
        while not self.finished(progress):
            started = time.perf_counter()
            window, rates, outcome = self.step(progress, clock)
            self.page.region("settle")
            agreed, plan = outcome.agreed, self.control.plan
            self.checkpoints.look(agreed)
            self.settle(outcome, window.taken, progress)
            progress = progress.after(window.taken, outcome.tokens)
            self.page.report(loss=outcome.loss, tokens=progress.tokens)
            seconds = time.perf_counter() - started
            forward_s, worked_s = clock.take()
            self.control.observe(forward_s=forward_s, worked_s=worked_s, seconds=seconds)
            val_loss = self.evaluate(progress)
            self.cadence.evaluated(val_loss)
            self.page.region("settle")
            self.metrics.write(
                progress,
                outcome,
                window.taken,
                plan=plan,
                changed=self.control.told(),
                rates=rates,
                seconds=seconds,
                val_loss=val_loss,
            )
            last = agreed.stop or self.finished(progress)
            if last or agreed.save or agreed.due or self.cadence.due_at(progress.step):
                self.save(progress, agreed, loss=outcome.loss, last=last)
            if agreed.news:
                self.hot.take_over(progress.step)
            if agreed.stop and not self.finished(progress):
                return ExitCode.SAVED
            self.profiler.between(progress.step)
        return ExitCode.FINISHED

    def step(self, progress: Progress, clock: Clock) -> tuple[Window, tuple[float, float], Outcome]:
        """One step over the next samples, in smaller portions when a device has no room for those planned.

        Raises:
            NoMemoryError: not even single samples fit, or this rank must start anew to try smaller portions.
        """
        ordered, due = self.orders.checkpoint_wanted(), self.cadence.due()
        while True:
            plan = self.control.plan
            self.page.mark(step=progress.step, phase=Phase.DATA)
            window = self.batches.window(progress.position, plan)
            tokens = progress.tokens + plan.global_batch * self.config.batch.sequence_length
            rates = self.rates.write(self.engine, tokens, self.control.rate_factor() * self.hot.rate_factor)
            try:
                outcome = take_step(
                    self.engine,
                    window,
                    self.ranks,
                    Instruments(
                        page=self.page,
                        watch=self.watch,
                        clock=clock,
                        routers=self.routers,
                        ahead_weight=self.config.model.mtp_loss_weight,
                    ),
                    step=progress.step,
                    wishes=replace(
                        self.checkpoints.wishes(),
                        stop=self.stop.requested,
                        save=ordered,
                        due=due,
                        redo=self.control.adaptive,
                        news=self.hot.wanted(),
                    ),
                )
            except NoMemoryError as error:
                self.control.out_of_memory(error)
                clock.take()
            else:
                return window, rates, outcome

    def save(self, progress: Progress, agreed: Wishes, *, loss: float, last: bool) -> None:
        """Save this step, unless its weights are not fit to be kept."""
        started = time.perf_counter()
        refuse_broken_weights(self.ranks, self.watch, *self.ranks.sums(not self.watch.sound))
        self.metrics.sync()
        done = self.checkpoints.save(
            self.engine, progress, agreed, loss=loss, val_loss=self.cadence.val_loss, must=last
        )
        self.cadence.saved(time.perf_counter() - started if done else None)

    def settle(self, outcome: Outcome, taken: Taken, before: Progress) -> None:
        """Learn from a step that was applied, or let the guard decide about one that was not."""
        if outcome.fault is None:
            self.guard.accept(outcome.grad_norm)
            self.rates.observe(before.tokens + outcome.tokens, outcome.loss)
            self.watch.last = where("", before.step, taken.start, taken.end).strip()
            self.watch.sound = weights_are_finite(self.engine)
            return
        self.guard.drop(outcome.fault, taken, step=before.step)
        if self.config.numerics.on_nan == "lower-scale":
            lower_scale(self.engine)

    def finished(self, progress: Progress) -> bool:
        """Whether the run's target is reached."""
        run = self.config.run
        return progress.step >= run.steps if run.steps else progress.tokens >= run.tokens

    def evaluate(self, progress: Progress) -> float | None:
        """Loss on the held-out part when it is due, and at the end of the run."""
        if self.evaluation is None:
            return None
        if progress.step % self.config.data.evaluate_interval_steps and not self.finished(progress):
            return None
        return self.evaluation.loss(self.engine, self.page, step=progress.step)
