"""A DeepSeek network from the configuration, by the classes of transformers."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3ForCausalLM

from contract.config.model import Model
from trainer.division import Division
from trainer.errors import ConfigError

EXPERTS = "grouped_mm"  # one product over all experts; "eager" asks the device for each expert's tokens
ROUTER_BIAS = "e_score_correction_bias"


def config_class(model_type: str) -> Any:
    """The class of configurations of this type in transformers: `deepseek_v3` or `deepseek_v2`."""
    if model_type == "deepseek_v2":
        # Here and not above: runs of the other type need not wait for it.
        from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config

        return DeepseekV2Config
    return DeepseekV3Config


def model_class(model_type: str, *, ahead: bool = False) -> Any:
    """The class of networks of this type in transformers; `ahead`: with the layer that predicts one token further."""
    if ahead:
        from trainer.ahead import AheadDeepseekV3

        return AheadDeepseekV3
    if model_type == "deepseek_v2":
        from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2ForCausalLM

        return DeepseekV2ForCausalLM
    return DeepseekV3ForCausalLM


def predicts_ahead(config: Any) -> bool:
    """Whether a network of this configuration has the layer that predicts one token further."""
    return bool(getattr(config, "num_mtp_layers", 0))


def started_architecture(
    settings: Mapping[str, Any], shape: Model, *, vocab_size: int, sequence_length: int
) -> Any:
    """The configuration of transformers for a run that starts from weights with this config.json.

    Raises:
        ConfigError: the data does not fit the weights.
    """
    config = config_class(settings["model_type"]).from_dict(dict(settings))
    if config.vocab_size < vocab_size:
        raise ConfigError(
            f"[model] vocab_size: the config.json knows {config.vocab_size} tokens, the prepared data uses {vocab_size}"
        )
    if config.max_position_embeddings < sequence_length:
        raise ConfigError(
            f"[batch] sequence_length: {sequence_length}, the weights were made for {config.max_position_embeddings}"
        )
    config.use_cache = False
    if config.model_type == "deepseek_v3":
        config.num_mtp_layers = int(shape.mtp_loss_weight > 0)
    return config


def architecture(shape: Model, *, vocab_size: int, sequence_length: int) -> Any:
    """The configuration of transformers for this shape.

    Raises:
        ConfigError: the data has more tokens than the embedding would have rows.
    """
    if shape.vocab_size and shape.vocab_size < vocab_size:
        raise ConfigError(
            f"[model] vocab_size: {shape.vocab_size}, the prepared data uses {vocab_size} tokens"
        )
    grouped = shape.expert_groups > 1
    own: dict[str, Any] = {"n_group": shape.expert_groups, "topk_group": shape.groups_per_token}
    if shape.family == "deepseek_v3":
        own["num_mtp_layers"] = int(shape.mtp_loss_weight > 0)
    else:
        own = {"topk_method": "group_limited_greedy", **own} if grouped else {"topk_method": "greedy"}
    return config_class(shape.family)(
        vocab_size=shape.vocab_size or vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        moe_intermediate_size=shape.moe_intermediate_size,
        num_hidden_layers=shape.layers,
        first_k_dense_replace=shape.dense_layers,
        num_attention_heads=shape.attention_heads,
        num_key_value_heads=shape.attention_heads,
        q_lora_rank=shape.q_lora_rank or None,
        kv_lora_rank=shape.kv_lora_rank,
        qk_nope_head_dim=shape.qk_nope_head_dim,
        qk_rope_head_dim=shape.qk_rope_head_dim,
        v_head_dim=shape.v_head_dim,
        n_routed_experts=shape.routed_experts,
        n_shared_experts=shape.shared_experts,
        num_experts_per_tok=shape.experts_per_token,
        routed_scaling_factor=shape.routed_scaling_factor,
        initializer_range=shape.initializer_range,
        max_position_embeddings=sequence_length,
        use_cache=False,
        **own,
    )


def build_model(config: Any, *, seed: int, divided: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """The network, with the same weights on every rank: each depends on the seed and its own name alone.

    In float32. With `divided`, DeepSpeed's JSON under ZeRO 3, every rank keeps its part of each weight alone, in the
    format of the run: no rank ever has more of the whole than one module's own parameters. All ranks must call it then.
    """
    kind = model_class(config.model_type, ahead=predicts_ahead(config))
    with torch.device("meta"):  # names and shapes
        model: Any = kind._from_config(config, experts_implementation=EXPERTS)  # noqa: SLF001 - AutoModel's own way
    division = Division(model, divided) if divided is not None else None
    with torch.no_grad():
        for name, module in model.named_modules():
            torch.manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7]))
            module.to_empty(device="cpu", recurse=False) if division is None else division.open(module)
            model._initialize_weights(module)  # noqa: SLF001 - as transformers itself, module by module
            if division is not None:
                division.close(module)
    model.tie_weights()  # a head that is the embedding's was filled for itself
    torch.manual_seed(seed)
    found: torch.nn.Module = model.train()
    return found


def fingerprint(model: torch.nn.Module) -> str:
    """Names and shapes in the optimizer's order; a checkpoint with another one cannot be loaded into this model."""
    named = sorted(model.named_parameters())
    # ZeRO-3 keeps the whole shape aside: a divided parameter's own is empty.
    return ";".join(
        f"{name}{tuple(getattr(parameter, 'ds_shape', parameter.shape))}" for name, parameter in named
    )


def check_router_bias(model: torch.nn.Module) -> None:
    """The router's bias must have stayed float32: its small updates would be lost to rounding in bfloat16."""
    wrong = {
        name: b.dtype for name, b in model.named_buffers() if ROUTER_BIAS in name and b.dtype != torch.float32
    }
    if wrong:
        raise ConfigError(f"this DeepSpeed has cast the router bias to a lower precision: {wrong}")
