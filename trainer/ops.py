"""DeepSpeed's compiled operators: built once at set-up, never while a run starts.

`python -P -m trainer.ops` builds what training can use into TORCH_EXTENSIONS_DIR. A start only loads what is there.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch

from contract.config.optimizer import Optimizer
from trainer.muon import Muon

log = logging.getLogger(__name__)

# DeepSpeed compiles this one at the first init_distributed on CPU, and calls it only for inference. Leaving it
# out also leaves no shared memory of a killed worker behind.
_UNUSED = "deepspeed_shm_comm"
_OFFLOAD = "cpu_adam"


def never_compile_unused() -> None:
    """Tell DeepSpeed that the operator training has no use for is not available."""
    deepspeed.ops.__compatible_ops__[_UNUSED] = False


def adamw(*, offloaded: bool) -> tuple[type, dict[str, Any]]:
    """(optimizer class, extra arguments) for AdamW where the update runs.

    Torch's fused kernel needs no compilation. When the update runs on the host beside a device, DeepSpeed's own
    kernel is faster, and is taken if it has been built.
    """
    if offloaded:
        if is_built(_OFFLOAD):
            _find_ninja()
            return deepspeed.ops.adam.DeepSpeedCPUAdam, {"adamw_mode": True}
        log.warning(
            "DeepSpeed's %s is not built (python -P -m trainer.ops builds it): using torch's AdamW", _OFFLOAD
        )
    return torch.optim.AdamW, {"fused": True}


def muon(wanted: Optimizer) -> tuple[type, dict[str, Any]]:
    """The same for Muon, whose AdamW part is torch's, on the host too."""
    return Muon, {"momentum": wanted.muon_momentum, "fused": True}


def is_built(name: str) -> bool:
    """Whether the operator is in the extensions directory, so that loading it compiles nothing."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR", "")
    return bool(root) and any(Path(root).rglob(f"{name}.so"))


def _find_ninja() -> None:
    """Torch looks for ninja in PATH, even to find that nothing is to be done; it lies beside this interpreter."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def build() -> int:
    """Build what training can use; returns an exit code. Needs a C++ compiler."""
    if not os.environ.get("TORCH_EXTENSIONS_DIR"):
        print("set TORCH_EXTENSIONS_DIR to the directory that the runs will use", file=sys.stderr)  # noqa: T201
        return 2
    if is_built(_OFFLOAD):
        return 0
    _find_ninja()
    deepspeed.ops.op_builder.CPUAdamBuilder().load(verbose=False)
    return 0 if is_built(_OFFLOAD) else 1


if __name__ == "__main__":
    sys.exit(build())
