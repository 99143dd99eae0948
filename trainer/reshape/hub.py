"""The Hugging Face form of a model: names as the hub has them, weights in safetensors files, published whole.

In a hub checkpoint each expert has matrices of its own; transformers joins them when it loads. Tensors pass one by
one, so that memory holds one file's worth at most.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from contract import files
from trainer.reshape.stored import Kind, Stored

INDEX = "model.safetensors.index.json"
_SHARD_BYTES = 4 << 30
_EXPERTS = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)\Z")


def hub_tensors(stored: Stored, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor under its name on the hub, weights in `dtype`, buffers as they are."""
    for name, shape in stored.shapes.items():
        joined = _EXPERTS.match(name)
        if joined is None:
            yield name, stored.whole(name, Kind.WEIGHT).to(dtype)
            continue
        experts, rows, columns = shape
        for expert in range(experts):
            flat = torch.empty(rows * columns, dtype=torch.float32)
            stored.copy(name, Kind.WEIGHT, expert * rows * columns, flat)
            matrix = flat.reshape(rows, columns).to(dtype)
            if joined[2] == "down_proj":
                yield f"{joined[1]}.{expert}.down_proj.weight", matrix
            else:
                gate, up = matrix.chunk(2)
                yield f"{joined[1]}.{expert}.gate_proj.weight", gate.contiguous()
                yield f"{joined[1]}.{expert}.up_proj.weight", up.contiguous()
    for name, buffer in stored.buffers.items():
        yield name, buffer.clone()


def write_weights(
    target: Path, tensors: Iterator[tuple[str, torch.Tensor]], *, shard_bytes: int = _SHARD_BYTES
) -> int:
    """Write the tensors into files of about `shard_bytes` and their index. Returns the bytes of all tensors."""
    parts: list[list[str]] = []
    waiting: dict[str, torch.Tensor] = {}
    total = size = 0

    def flush() -> None:
        nonlocal size
        save_file(waiting, _part(target, len(parts)), metadata={"format": "pt"})
        parts.append(list(waiting))
        waiting.clear()
        size = 0

    for name, tensor in tensors:
        if waiting and size + tensor.nbytes > shard_bytes:
            flush()
        waiting[name] = tensor
        size += tensor.nbytes
        total += tensor.nbytes
    flush()
    where: dict[str, str] = {}
    for number, names in enumerate(parts):
        # The name says how many there are, which is known only now.
        named = f"model-{number + 1:05d}-of-{len(parts):05d}.safetensors"
        _part(target, number).rename(target / named)
        where |= dict.fromkeys(names, named)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (target / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return total


def sync_all(directory: Path) -> None:
    """Make every file of the directory durable."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files.sync_directory(directory)


def _part(target: Path, number: int) -> Path:
    return target / f"part-{number}"
