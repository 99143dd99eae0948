"""Random number generators of a process, as something that a checkpoint can hold."""

import random
from typing import Any

import numpy as np
import torch


def random_state(device: torch.device) -> dict[str, Any]:
    """State of every generator that training may draw from on this rank."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=True),  # noqa: NPY002 - the global generator is what libraries use
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put the generators back to where `random_state` found them."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def fresh_random_state(device: torch.device, *, seed: int, step: int, rank: int) -> None:
    """Give the generators a stream of their own, made of these three numbers alone.

    The rule when the number of ranks has changed: no stream belongs to anybody then, old or new.
    """
    mixed = np.random.SeedSequence((seed, step, rank))
    python, numpy, here, there = (int(word) for word in mixed.generate_state(4))
    random.seed(python)
    np.random.seed(numpy)  # noqa: NPY002
    torch.random.default_generator.manual_seed(here)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(there)
