"""Puts the parts of a run together, in the order that wastes the least time before the first step."""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from contract.config import RunConfig
from contract.layout import RunDir
from contract.page import WorkerPage
from contract.schedule import course_of
from contract.staged import VARIABLE
from contract.states import Phase
from contract.stop import StopFlag
from trainer.batch.control import BatchControl, remember_oom, too_large_before
from trainer.batch.measure import Nothing, gauge_of
from trainer.cadence import Cadence, failures_so_far
from trainer.checkpoint import Checkpoints
from trainer.data.batches import Batches
from trainer.data.corpora import Reader, open_split, order_of
from trainer.distributed import Ranks
from trainer.engine import build_engine, deepspeed_config
from trainer.evaluate import Evaluation
from trainer.groups import groups_of
from trainer.guard import Guard
from trainer.hot import HotSettings
from trainer.levers import check_levers, compiled, thrifty
from trainer.loop import Training
from trainer.metrics import Metrics
from trainer.model import architecture, build_model, started_architecture
from trainer.norms import Watch
from trainer.orders import Orders
from trainer.precision import check_precision, in_precision
from trainer.pretrained import load_weights, record_start, start_settings
from trainer.profiling.capture import Profiler
from trainer.progress import Progress
from trainer.resume import ResumePoint, agree_on_resume, tell_changes
from trainer.routers import Routers
from trainer.schedule import Rates
from trainer.trackers.beside import Tracking
from trainer.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a rank can find out by itself, before it meets the others."""

    config: RunConfig
    reader: Reader
    held_out: Reader | None
    shape: Any
    settings: dict[str, Any]


def plan(config: RunConfig, run: RunDir, *, ranks: int) -> Plan:
    """Check everything that needs no other rank, so that a bad configuration ends each rank in the same way.

    Raises:
        ConfigError: the run cannot work like this.
    """
    check_precision(config.precision)
    length = config.batch.sequence_length
    stage = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
    reader = open_split(config, "train", stage)
    started = start_settings(run, config.model)
    evaluated = config.data.evaluate_interval_steps > 0
    return Plan(
        config=config,
        reader=reader,
        held_out=open_split(config, "validation", stage) if evaluated else None,
        shape=architecture(config.model, vocab_size=reader.vocab_size, sequence_length=length)
        if started is None
        else started_architecture(
            started, config.model, vocab_size=reader.vocab_size, sequence_length=length
        ),
        settings=deepspeed_config(config, ranks=ranks),
    )


def assemble(
    given: Plan, worker: Worker, ranks: Ranks, page: WorkerPage, stop: StopFlag
) -> tuple[Training, Progress]:
    """Everything ready for the first step, at the place where this generation resumes."""
    config, reader = given.config, given.reader
    worker, point = agree_on_resume(config, worker, ranks, page)
    tell_changes(worker, point, config)
    windows = tuple(sorted({*worker.skip_windows, *point.skip_windows}))
    sampler = order_of(config, reader, windows)
    page.mark(step=point.progress.step, phase=Phase.START, micro_step=1)
    checkpoints = Checkpoints(config, worker, ranks, page)
    model = in_precision(thrifty(_network(given, worker, point), config.memory), config.precision)
    model = compiled(model, wanted=config.model.compile_layers)
    layout = checkpoints.layout(point)
    guard = Guard(config.numerics)
    watch = Watch(limit=guard.norm_limit)
    engine = build_engine(config, given.settings, model, layout, watch)
    groups = groups_of(engine.module, config.model.layers, layout)
    check_levers(engine, config)
    rates = Rates(course_of(config), groups)
    control = batch_control(config, worker, ranks, page)
    checkpoints.attach(engine, {"rates": rates, "guard": guard, "batch": control}, skip_windows=windows)
    progress = checkpoints.load(engine, point, groups)
    control.respect(
        ranks.from_leader(
            too_large_before(worker.run, length=config.batch.sequence_length) if worker.leads else 0
        )
    )
    orders = Orders(page)
    profiler = Profiler(config.profile, worker, page, world_size=ranks.size, cuda=ranks.device.type == "cuda")
    training = Training(
        config=config,
        ranks=ranks,
        engine=engine,
        batches=Batches(reader, sampler, rank=ranks.rank),
        control=control,
        rates=rates,
        guard=guard,
        routers=Routers(engine.module, config.model, ranks.device),
        watch=watch,
        evaluation=Evaluation(config, given.held_out, ranks) if given.held_out else None,
        checkpoints=checkpoints,
        cadence=Cadence(
            config.checkpoint, failures_so_far(worker.run) if worker.leads else None, clock=time.monotonic
        ),
        metrics=Metrics(
            worker.run,
            attempt=worker.attempt,
            generation=worker.generation,
            active=worker.leads,
            tracking=_tracking(config, worker, resumed_at=progress.step),
        ),
        page=page,
        stop=stop,
        orders=orders,
        hot=HotSettings(
            config=config,
            ranks=ranks,
            engine=engine,
            watch=watch,
            control=control,
            orders=orders,
            profiler=profiler,
        ),
        profiler=profiler,
    )
    return training, progress


def _tracking(config: RunConfig, worker: Worker, *, resumed_at: int) -> Tracking | None:
    """Who else is told of each step; rank 0 alone tells."""
    if not worker.leads:
        return None
    return Tracking(
        worker.run,
        config.trackers,
        attempt=worker.attempt,
        generation=worker.generation,
        resumed_at=resumed_at,
    )


def _network(given: Plan, worker: Worker, point: ResumePoint) -> torch.nn.Module:
    """The network: new, or at the first start of a run that asks for it with Hugging Face weights."""
    wanted = given.config.model
    if worker.leads and not point.checkpoint and (wanted.init_from or wanted.hf_config):
        record_start(worker.run, wanted)
    if not wanted.init_from or point.checkpoint:
        divided = given.settings["zero_optimization"]["stage"] == 3
        return build_model(
            given.shape, seed=given.config.run.seed, divided=given.settings if divided else None
        )
    return load_weights(Path(wanted.init_from), given.shape)


def batch_control(config: RunConfig, worker: Worker, ranks: Ranks, page: WorkerPage) -> BatchControl:
    """Who cuts the steps of this run."""
    batch = config.batch
    gauge = gauge_of(batch, page, ranks.device, leads=worker.leads) if batch.adaptive != "off" else Nothing()
    remember = partial(remember_oom, worker, length=batch.sequence_length)
    return BatchControl(batch, ranks, gauge, remember)
