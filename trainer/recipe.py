"""Where a worker's configuration comes from. Imports nothing heavy: it decides which device is asked for."""

from pathlib import Path

from contract import config as configuration
from contract.config import RunConfig
from trainer.errors import ConfigError, RefusedError
from trainer.worker import Worker


def read_config(worker: Worker, recipe: Path | None) -> RunConfig:
    """The run's configuration: the resolved one of the run directory, or a recipe when no agent started us.

    Raises:
        ConfigError: it cannot be used.
        RefusedError: the run directory is gone.
    """
    if worker.supervised and not worker.run.path.is_dir():
        raise RefusedError(f"{worker.run.path} is not there: the run directory vanished or is not mounted")
    try:
        if recipe is not None:
            return configuration.load(recipe)
        return configuration.read_resolved(worker.run.config)
    except configuration.ConfigError as error:
        raise ConfigError(str(error)) from error


def wanted_accelerator(config: RunConfig) -> str:
    """DeepSpeed's name of the device that the run asks for: `cuda` or `cpu`."""
    return "cuda" if config.job.gpus_per_node else "cpu"
