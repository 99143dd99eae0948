"""The start from Hugging Face weights: read once, at the first start of a run, and recorded in the run directory.

`start/` in the run directory keeps config.json and the tokenizer's files, so that later starts and the export need
nothing but the run directory.
"""

import json
import logging
from pathlib import Path
from typing import Any

import torch
import transformers

from contract import files
from contract.config.model import Model
from contract.config.pretrained import CONFIG, config_file, differences, shape_in
from contract.layout import RunDir
from trainer.errors import ConfigError
from trainer.model import EXPERTS, model_class, predicts_ahead

log = logging.getLogger(__name__)

_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
)
_RECORD = "start.json"


def start_settings(run: RunDir, shape: Model) -> dict[str, Any] | None:
    """The config.json that the run started from, None when it started from none.

    Raises:
        ConfigError: it is neither in the run directory nor where `init_from` says, or [model] says otherwise.
    """
    if not shape.init_from and not shape.hf_config:
        return None
    for path in (run.start / CONFIG, config_file(shape)):
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"[model] {path} cannot be read: {error}") from error
        taken, problems = shape_in(found)
        if problems := problems or differences(shape, taken):
            raise ConfigError("; ".join(problems))
        return found
    raise ConfigError(f"[model] {config_file(shape)} is not there")


def load_weights(directory: Path, config: Any) -> torch.nn.Module:
    """The network with the weights of this directory, in float32, by transformers' own loading.

    Raises:
        ConfigError: they do not fill this network.
    """
    kind = model_class(config.model_type, ahead=predicts_ahead(config))
    transformers.utils.logging.disable_progress_bar()  # of every rank, into one log
    try:
        model, told = kind.from_pretrained(
            directory,
            config=config,
            dtype=torch.float32,
            experts_implementation=EXPERTS,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"[model] init_from: {directory} cannot be loaded: {error}") from error
    missing, further = set(told["missing_keys"]), _further_layer(model)
    if further and further <= missing:
        log.warning("%s has no layer that predicts one token further: it starts new", directory)
        missing -= further
    wrong = sorted({*missing, *(key[0] for key in told["mismatched_keys"])})
    if wrong:
        raise ConfigError(
            f"[model] init_from: {directory} lacks {len(wrong)} of the network's tensors or has them in another size: "
            f"{', '.join(wrong[:6])}"
        )
    left = sorted(told["unexpected_keys"])
    if left:
        log.warning(
            "%s: %d tensors have no place in the network: %s", directory, len(left), ", ".join(left[:6])
        )
    log.info("starting from the weights in %s", directory)
    model.train()
    found: torch.nn.Module = model
    return found


def _further_layer(model: torch.nn.Module) -> set[str]:
    """Names of the layer after the last one."""
    start = f"model.layers.{model.config.num_hidden_layers}."
    return {name for name in model.state_dict() if name.startswith(start)}


def record_start(run: RunDir, shape: Model) -> None:
    """Keep what later starts and the export need of the weights' directory, and what it was. Harmless when repeated."""
    source = config_file(shape).parent
    run.start.mkdir(exist_ok=True)
    if shape.hf_config:
        files.create_file(run.start / CONFIG, Path(shape.hf_config).read_bytes())
        return
    for name in (*_TOKENIZER, CONFIG):
        content = files.read_bytes(source / name)
        if content is not None:
            files.create_file(run.start / name, content)
    weights = {path.name: path.stat().st_size for path in sorted(source.glob("*.safetensors"))}
    files.create_json(run.start / _RECORD, {"version": 1, "path": str(source), "weights": weights})


def tokenizer_files(run: RunDir) -> list[Path]:
    """The tokenizer's files that the run started with; none when it started from no weights."""
    return [path for name in _TOKENIZER if (path := run.start / name).exists()]
