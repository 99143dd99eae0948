"""The shape of [model] where it comes from elsewhere: a preset, or a config.json in Hugging Face format."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from contract.config.model import PRESETS, Model
from contract.plain import required

ARCHITECTURES = frozenset({"deepseek_v2", "deepseek_v3"})
CONFIG = "config.json"

# Our key → their names for it (older files have other ones), and what their null means.
_KEYS: Mapping[str, tuple[tuple[str, ...], int | None]] = {
    "vocab_size": (("vocab_size",), None),
    "hidden_size": (("hidden_size",), None),
    "intermediate_size": (("intermediate_size",), None),
    "moe_intermediate_size": (("moe_intermediate_size",), None),
    "layers": (("num_hidden_layers",), None),
    "dense_layers": (("first_k_dense_replace",), 0),
    "attention_heads": (("num_attention_heads",), None),
    "q_lora_rank": (("q_lora_rank",), 0),
    "kv_lora_rank": (("kv_lora_rank",), None),
    "qk_nope_head_dim": (("qk_nope_head_dim",), None),
    "qk_rope_head_dim": (("qk_rope_head_dim",), None),
    "v_head_dim": (("v_head_dim",), None),
    "routed_experts": (("n_routed_experts", "num_local_experts", "num_experts"), None),
    "shared_experts": (("n_shared_experts",), None),
    "experts_per_token": (("num_experts_per_tok",), None),
    "expert_groups": (("n_group",), 1),
    "groups_per_token": (("topk_group",), 1),
    "routed_scaling_factor": (("routed_scaling_factor",), None),
    "initializer_range": (("initializer_range",), None),
}


def shaped(model: Model) -> tuple[Model, list[str]]:
    """[model] with the shape that `preset`, `hf_config` or `init_from` has, and what is wrong (`model.key: sentence`).

    A key set beside a preset counts; one set beside a config.json must say the same.
    """
    named = [key for key in ("preset", "hf_config", "init_from") if getattr(model, key)]
    if len(named) > 1:
        return model, [f"model.{named[0]}: set beside {named[1]}, which has a shape of its own"]
    taken: dict[str, Any] = {}
    problems: list[str] = []
    if model.preset:
        taken = {key: its for key, its in PRESETS[model.preset].items() if key not in model.model_fields_set}
    elif named:
        key, path = named[0], config_file(model)
        found, problems = _read(path, weights=bool(model.init_from))
        if not problems:
            taken, problems = shape_in(found)
            problems = [f"{path}: {text}" for text in problems]
        if problems:
            return model, [f"model.{key}: {text}" for text in problems]
        problems = differences(model, taken)
    if taken.get("family", model.family) == "deepseek_v2":
        if "router_bias_speed" in model.model_fields_set and model.router_bias_speed:
            problems.append("model.router_bias_speed: V2's routers have no bias; use balance_loss_weight")
        taken["router_bias_speed"] = 0.0
        if model.mtp_loss_weight:
            problems.append("model.mtp_loss_weight: V2 has no layer for it; set 0")
    return model.model_copy(update=taken), problems


def config_file(model: Model) -> Path:
    """The config.json that `hf_config` or `init_from` names."""
    return Path(model.hf_config) if model.hf_config else Path(model.init_from) / CONFIG


def shape_in(found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The keys of [model] as this config.json has them, and what is wrong with it."""
    taken: dict[str, Any] = {}
    problems: list[str] = []
    for key, (names, null) in _KEYS.items():
        name = next((name for name in names if name in found), None)
        if name is None:
            problems.append(f"{names[0]} is missing")
            continue
        value = null if found[name] is None else found[name]
        try:
            taken[key] = getattr(Model.model_validate({key: value}), key)
        except ValidationError as error:
            problems.append(f"{name} is {value!r}; {required(error.errors(include_url=False)[0])}")
    if found.get("model_type") in ARCHITECTURES:
        taken["family"] = found["model_type"]
    return taken, problems


def differences(model: Model, taken: Mapping[str, Any]) -> list[str]:
    """Where a key that is set says something else than the weights (`model.key: sentence`)."""
    return [
        f"model.{key}: is {getattr(model, key)!r}, but the weights of init_from have {value!r}; leave the key out"
        for key, value in taken.items()
        if key in model.model_fields_set and getattr(model, key) != value
    ]


def _read(path: Path, *, weights: bool) -> tuple[dict[str, Any], list[str]]:
    """The config.json, and what is wrong with it, or with the weights beside it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, [f"{path} cannot be read: {error}"]
    if not isinstance(found, dict) or found.get("model_type") not in ARCHITECTURES:
        kind = found.get("model_type") if isinstance(found, dict) else None
        return {}, [
            f"{path.parent} holds a {kind!r} model; {' and '.join(sorted(ARCHITECTURES))} can be trained"
        ]
    problems = []
    if weights and found.get("quantization_config"):
        problems.append(
            f"the weights in {path.parent} are quantised; convert them to bf16 first (DeepSeek's fp8_cast_bf16.py)"
        )
    if found.get("tie_word_embeddings"):
        problems.append(
            f"{path.parent} shares the embedding with the head (tie_word_embeddings), which is not supported"
        )
    if weights and not any(path.parent.glob("*.safetensors")):
        problems.append(f"{path.parent} has no *.safetensors files")
    return found, problems
