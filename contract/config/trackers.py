"""[trackers]: where the figures of each step go besides the run directory."""

import importlib.util
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from contract.config.base import Section

# Service → (variable with its key, variable that may say "offline", variables that workers should see).
SERVICES: Mapping[str, tuple[str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "wandb": ("WANDB_API_KEY", "WANDB_MODE", ("WANDB_BASE_URL",)),
        "swanlab": ("SWANLAB_API_KEY", "SWANLAB_MODE", ("SWANLAB_API_HOST", "SWANLAB_WEB_HOST")),
    }
)


class Trackers(Section):
    """Rank 0 writes TensorBoard's files; a process beside it feeds the services, and training never waits for that."""

    tensorboard: Literal["auto", "on", "off"] = "auto"
    """Event files in the run directory's `tensorboard/`, one curve over all restarts. auto: when the package is there."""
    wandb_project: str = ""
    """Project at Weights & Biases; "": not used. The key comes from WANDB_API_KEY."""
    wandb_entity: str = ""
    """User or team that the project belongs to; "": the key's own."""
    swanlab_project: str = ""
    """Project at SwanLab; "": not used. The key comes from SWANLAB_API_KEY."""
    swanlab_workspace: str = ""
    """Workspace that the project belongs to; "": the key's own."""

    @property
    def services(self) -> tuple[str, ...]:
        """The services that are wanted."""
        wanted = {"wandb": self.wandb_project, "swanlab": self.swanlab_project}
        return tuple(name for name, project in wanted.items() if project)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of environment variables that the processes at the workers need."""
        found = (SERVICES[name] for name in self.services)
        return tuple(name for key, mode, others in found for name in (key, mode, *others))

    def contradictions(self) -> list[str]:
        problems = []
        if self.tensorboard == "on" and not _installed("tensorboard"):
            problems.append('tensorboard: the package is not installed: pip install "ciuic[trackers]"')
        for name in self.services:
            key, mode, _ = SERVICES[name]
            if not _installed(name):
                problems.append(f"{name}_project: the package is not installed: pip install {name}")
            elif not os.environ.get(key) and os.environ.get(mode) != "offline":
                problems.append(
                    f"{name}_project: no key in the environment variable {key} (or {mode}=offline)"
                )
        return problems


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
