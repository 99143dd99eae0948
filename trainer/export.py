"""A checkpoint to the form of Hugging Face. Runs by itself: `python -P -m trainer.export RUN_DIR …`.

Needs no rank and no engine; reads whatever number of ranks and ZeRO stage wrote the checkpoint.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.plain import plainly

if __name__ == "__main__":
    from trainer import preload  # noqa: F401 - first: quiet imports, and no device claimed

import torch

from contract import config as configuration
from contract import files, manifest
from contract.layout import RunDir
from contract.manifest import Bounds, Checkpoint
from contract.sources import open_source
from trainer import pretrained
from trainer.data.tokenizer import END_TOKEN
from trainer.errors import ReadError, TrainerError
from trainer.groups import Layout, counted_by
from trainer.model import config_class, model_class
from trainer.reshape.change import compare
from trainer.reshape.hub import hub_tensors, sync_all, write_weights
from trainer.reshape.stored import Stored, open_stored

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_NEWEST = 1 << 62


class ExportError(TrainerError):
    """Nothing was exported; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written where."""

    step: int
    path: Path
    bytes: int
    tokenizer: tuple[str, ...]


def export(run: RunDir, *, step: int, target: Path | None, dtype: str) -> Exported:
    """Write the newest valid checkpoint (or that of `step`, -1: newest) to `target`, whole or not at all.

    Raises:
        ExportError: there is no such checkpoint, or `target` exists.
        ReadError: the checkpoint is not what it should be.
    """
    found = _checkpoint(run, step)
    what = found.manifest
    assert what is not None
    place = target or run.exports / f"step-{found.step:09d}-{dtype}"
    if place.exists():
        raise ExportError(f"{place} exists already; remove it, or name another place with --out")
    own: dict[str, Any] = torch.load(found.path / "rank-00000.pt", weights_only=False)
    layout = Layout(own.get("groups", Layout.BY_DECAY))
    stored = open_stored(found.path, ranks=what.world_size, order=lambda d: counted_by(d, layout))
    settings = _settings(own, stored) | {"dtype": str(DTYPES[dtype]).removeprefix("torch.")}
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = files.FileLock(place.with_name(f".{place.name}.lock"))
    if not lock.acquire():
        raise ExportError(f"another export is writing {place}")
    aside = place.with_name(f".{place.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)  # of one that was killed
    try:
        aside.mkdir()
        size = write_weights(aside, hub_tensors(stored, DTYPES[dtype]))
        tokenizer, extra = _copy_tokenizer(run, aside)
        (aside / "config.json").write_text(json.dumps(settings | extra, indent=1) + "\n")
        sync_all(aside)
        aside.rename(place)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        lock.path.unlink(missing_ok=True)
        lock.release()
    files.sync_directory(place.parent)
    return Exported(step=found.step, path=place, bytes=size, tokenizer=tokenizer)


def _checkpoint(run: RunDir, step: int) -> Checkpoint:
    reasons: list[str] = []

    def skipped(checkpoint: Checkpoint) -> None:
        reasons.append(f"{checkpoint.path.name}: {checkpoint.reason}")

    bounds = Bounds() if step < 0 else Bounds(min_step=step, max_step=step)
    found = next(
        manifest.candidates(run, before=(_NEWEST, 1), bounds=bounds, deep=True, skipped=skipped), None
    )
    if found is None:
        which = "" if step < 0 else f" of step {step}"
        raise ExportError("; ".join([f"{run.run_id} has no valid checkpoint{which}", *reasons]))
    return found


def _settings(own: dict[str, Any], stored: Stored) -> dict[str, Any]:
    """config.json of the model that wrote the checkpoint, checked against its parameters."""
    if "architecture" not in own:
        raise ExportError(
            "this checkpoint was written before checkpoints told their architecture; resume the run and let it save once"
        )
    config = config_class(own["architecture"]["model_type"]).from_dict(own["architecture"])
    ahead = any(name.startswith(f"model.layers.{config.num_hidden_layers}.") for name in stored.shapes)
    config.num_mtp_layers = int(ahead)  # checkpoints of older versions say one, and have none
    kind = model_class(config.model_type, ahead=ahead)
    with torch.device("meta"):
        model = kind._from_config(config)  # noqa: SLF001 - AutoModel's own way
    change = compare(stored.shapes, {name: tuple(p.shape) for name, p in model.named_parameters()})
    if not change.none:
        raise ReadError(f"the checkpoint does not hold the model that it describes: {change.sentence()}")
    settings: dict[str, Any] = config.to_dict()
    settings.pop("_name_or_path", None)
    return settings | {"architectures": [model_class(config.model_type).__name__], "use_cache": True}


def _copy_tokenizer(run: RunDir, target: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The tokenizer's files, and what config.json says of it; nothing where it is plain bytes."""
    kept = pretrained.tokenizer_files(run)
    for path in kept:
        shutil.copyfile(path, target / path.name)
    if kept:
        return tuple(path.name for path in kept), {}
    data = configuration.read_resolved(run.config).data
    source = open_source(data.sources[0].path, data.store, os.environ)
    try:
        index = json.loads(source.whole("index.json"))
        (target / "tokenizer.json").write_bytes(source.whole("tokenizer.json"))
    except FileNotFoundError:
        return (), {}
    end = index["tokenizer"]["end"]
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END_TOKEN}
    (target / "tokenizer_config.json").write_text(json.dumps(facts, indent=1) + "\n")
    return ("tokenizer.json", "tokenizer_config.json"), {"eos_token_id": end, "bos_token_id": None}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; prints one JSON line about what was written. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -P -m trainer.export", description="Export to Hugging Face format."
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--step", type=int, default=-1)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    given = parser.parse_args(arguments)
    try:
        done = export(RunDir(path=given.run_dir), step=given.step, target=given.out, dtype=given.dtype)
    except (TrainerError, OSError, configuration.ConfigError) as error:
        print(f"export: {plainly(error)}", file=sys.stderr)  # noqa: T201
        return 1
    facts = {
        "version": 1,
        "step": done.step,
        "path": str(done.path),
        "bytes": done.bytes,
        "tokenizer": list(done.tokenizer),
    }
    print(json.dumps(facts, ensure_ascii=False))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
