"""The heavy imports, done once in the process from which workers are forked.

Leaves one thread, no CUDA context and no open device behind: a fork copies neither threads nor a driver's state.
"""

# ruff: noqa: E402 - the variables must be set before torch and DeepSpeed are imported

import gc
import logging
import os
import warnings

# Read by DeepSpeed and torch when they are imported. Counting devices through NVML does not start the
# driver; the ordinary way would, and would break CUDA in every forked child.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's BLAS starts threads at import otherwise
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are built from the config, nothing is downloaded
# torch renames collectives that DeepSpeed calls; nothing that a user could act on.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\..*")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import deepspeed.module_inject.auto_ep_layer

# Imported by DeepSpeed in the middle of building an engine; it pulls in torch's compiler (0.8 s).
import deepspeed.runtime.zero.muon.muon_optimizer
import transformers.utils

# transformers imports torchao wherever it is installed, for a quantisation that nobody here asks of it: a second and
# warnings on every start. `trainer.precision` imports it for the runs that compute in FP8.
transformers.utils.import_utils.is_torchao_available = lambda *_: False
transformers.utils.is_torchao_available = transformers.utils.import_utils.is_torchao_available

import transformers.models.deepseek_v3.modeling_deepseek_v3

from trainer import assembly, ops
from trainer.trackers import curves

curves.preload()
ops.never_compile_unused()
logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
# DeepSpeed collects garbage a dozen times while it builds an engine, each time through all that is imported (0.5 s).
gc.freeze()

__all__ = ["assembly", "deepspeed", "torch", "transformers"]
