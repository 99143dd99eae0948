"""The sections together, and the contradictions that only show between them."""

from collections.abc import Callable

from pydantic import Field

from contract.config.alerts import Alerts
from contract.config.base import Section
from contract.config.batch import Batch
from contract.config.checkpoint import Checkpoint
from contract.config.copies import Backup, Mirror
from contract.config.data import Data
from contract.config.deepspeed import DeepSpeed
from contract.config.job import Job, Node
from contract.config.memory import Memory
from contract.config.model import Model
from contract.config.monitor import Monitor
from contract.config.numerics import Numerics
from contract.config.optimizer import Optimizer
from contract.config.precision import Precision
from contract.config.profile import Profile
from contract.config.run import Metadata, Run
from contract.config.schedule import Schedule
from contract.config.supervision import Supervisor
from contract.config.trackers import Trackers


class RunConfig(Section):
    """run.toml."""

    run: Run = Field(default_factory=Run)
    metadata: Metadata = Field(default_factory=Metadata)
    job: Job = Field(default_factory=Job)
    node: Node = Field(default_factory=Node)
    model: Model = Field(default_factory=Model)
    data: Data = Field(default_factory=Data)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    schedule: Schedule = Field(default_factory=Schedule)
    batch: Batch = Field(default_factory=Batch)
    precision: Precision = Field(default_factory=Precision)
    memory: Memory = Field(default_factory=Memory)
    numerics: Numerics = Field(default_factory=Numerics)
    deepspeed: DeepSpeed = Field(default_factory=DeepSpeed)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    mirror: Mirror = Field(default_factory=Mirror)
    backup: Backup = Field(default_factory=Backup)
    monitor: Monitor = Field(default_factory=Monitor)
    profile: Profile = Field(default_factory=Profile)
    trackers: Trackers = Field(default_factory=Trackers)
    supervisor: Supervisor = Field(default_factory=Supervisor)
    alerts: Alerts = Field(default_factory=lambda: Alerts.model_validate({}))


def _batch_divides(config: RunConfig) -> list[str]:
    # Another program has batches of its own.
    return [] if config.job.command else config.batch.divides(config.job.world_size)


def _data_is_there(config: RunConfig) -> list[str]:
    return [] if config.job.command else [f"data.{text}" for text in config.data.missing()]


def _stage_fits(config: RunConfig) -> list[str]:
    if config.job.command or config.deepspeed.zero_stage != 0 or config.precision.dtype == "fp32":
        return []
    dtype = config.precision.dtype
    return [
        f"deepspeed.zero_stage: 0 with {dtype} loses optimizer state in DeepSpeed; use 1, or precision.dtype = fp32"
    ]


def _experts_divide(config: RunConfig) -> list[str]:
    size = config.deepspeed.expert_parallel
    if config.job.command or size == 1:
        return []
    found = []
    if config.job.world_size % size:
        found.append(f"{size} does not divide {config.job.world_size} ranks")
    if config.model.routed_experts % size:
        found.append(f"{size} does not divide {config.model.routed_experts} experts")
    if config.deepspeed.zero_stage < 2:
        found.append("needs zero_stage = 2 or 3: with less, ranks would clip by different norms")
    if config.optimizer.name == "muon":
        found.append("Muon puts matrices together over all ranks, which have different experts; use adamw")
    if config.batch.adaptive == "balance":
        found.append("ranks meet in every layer, so adaptive = balance has nothing to gain; use another")
    if config.model.compile_layers:
        found.append("its layers read sizes on the host, which cannot be compiled; leave compile_layers off")
    return [f"deepspeed.expert_parallel: {text}" for text in found]


def _balance_is_measurable(config: RunConfig) -> list[str]:
    if config.batch.adaptive != "balance" or config.deepspeed.zero_stage < 3:
        return []
    return [
        "batch.adaptive: balance with zero_stage = 3 cannot tell a slow rank from one that waits for weights; use 2"
    ]


def _end_is_in_tokens(config: RunConfig) -> list[str]:
    if config.batch.adaptive != "grow" or not config.run.steps:
        return []
    return [
        (
            "batch.adaptive: grow makes steps of different sizes, so run.steps cannot say where the schedule ends; "
            "set run.tokens instead"
        )
    ]


def _gpus_are_there(config: RunConfig) -> list[str]:
    if config.batch.adaptive == "off" or config.batch.source != "nvml" or config.job.gpus_per_node:
        return []
    return ["batch.source: nvml needs gpus_per_node; without GPUs use phases"]


def _foreign_checkpoints_are_foreign(config: RunConfig) -> list[str]:
    if not config.checkpoint.foreign_glob:
        return []
    if not config.job.command:
        return [
            "checkpoint.foreign_glob: for programs of your own ([job] command); ciuic's trainer has its own place"
        ]
    if config.backup.directory or config.metadata.bucket[0]:
        return [
            "checkpoint.foreign_glob: copies ([backup], [mirror]) are made of ciuic's own checkpoints only"
        ]
    return []


def _profiled_ranks_exist(config: RunConfig) -> list[str]:
    if config.job.command:
        return []
    beyond = [str(rank) for rank in config.profile.ranks if rank >= config.job.world_size]
    return (
        [f"profile.ranks: {', '.join(beyond)} of {config.job.world_size} ranks, counted from 0"]
        if beyond
        else []
    )


def _only_our_trainer_tells(config: RunConfig) -> list[str]:
    if not config.job.command:
        return []
    wanted = [f"trackers.{name}_project" for name in config.trackers.services]
    wanted += ["trackers.tensorboard"] if config.trackers.tensorboard == "on" else []
    wanted += ["profile.at_steps"] if config.profile.at_steps else []
    wanted += ["profile.every_steps"] if config.profile.every_steps else []
    return [
        f"{key}: ciuic's own trainer does this, not a program of your own ([job] command)" for key in wanted
    ]


def _scale_exists(config: RunConfig) -> list[str]:
    if config.numerics.on_nan != "lower-scale" or config.precision.dtype == "fp16":
        return []
    return [
        f"numerics.on_nan: lower-scale needs a loss scale, and {config.precision.dtype} has none; use skip"
    ]


# (sections that must be sound for the check to mean something, the check)
BETWEEN: tuple[tuple[frozenset[str], Callable[[RunConfig], list[str]]], ...] = (
    (frozenset({"batch", "job"}), _batch_divides),
    (frozenset({"data", "job"}), _data_is_there),
    (frozenset({"deepspeed", "precision", "job"}), _stage_fits),
    (frozenset({"deepspeed", "job", "model", "optimizer", "batch"}), _experts_divide),
    (frozenset({"batch", "deepspeed"}), _balance_is_measurable),
    (frozenset({"batch", "job"}), _gpus_are_there),
    (frozenset({"batch", "run"}), _end_is_in_tokens),
    (frozenset({"checkpoint", "job", "backup", "metadata"}), _foreign_checkpoints_are_foreign),
    (frozenset({"numerics", "precision"}), _scale_exists),
    (frozenset({"profile", "job"}), _profiled_ranks_exist),
    (frozenset({"profile", "trackers", "job"}), _only_our_trainer_tells),
)
