"""Shapes by name, and where two of them would contradict."""

import json

import pytest

from contract.config import ConfigError, parse
from contract.config.model import PRESETS, Model


def model_of(tmp_path, **keys) -> Model:
    try:
        found = parse({"model": keys}, source="test", bases=[tmp_path], only=frozenset({"model"}))
    except ConfigError as error:
        raise AssertionError(str(error)) from error
    return found.model


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_preset_is_a_shape_without_contradictions(tmp_path, name):
    found = model_of(tmp_path, preset=name)
    assert found.contradictions() == []
    assert all(getattr(found, key) == value for key, value in PRESETS[name].items())


def test_published_shapes_and_own_keys_beside_them(tmp_path):
    v3 = model_of(tmp_path, preset="v3", layers=4, dense_layers=1)
    assert (v3.hidden_size, v3.routed_experts, v3.experts_per_token) == (7168, 256, 8)
    assert (v3.layers, v3.dense_layers) == (4, 1)
    assert v3.router_bias_speed == 0.001
    lite = model_of(tmp_path, preset="v2-lite")
    assert (lite.family, lite.router_bias_speed, lite.q_lora_rank) == ("deepseek_v2", 0.0, 0)


def test_a_config_file_gives_the_shape_and_must_not_be_contradicted(tmp_path):
    names = {
        "vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
        "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 4, "q_lora_rank": None,
        "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": None, "topk_group": None,
        "routed_scaling_factor": 1.0, "initializer_range": 0.02, "model_type": "deepseek_v2",
    }  # fmt: skip
    (tmp_path / "shape.json").write_text(json.dumps(names))
    found = model_of(tmp_path, hf_config="shape.json")
    assert (found.family, found.hidden_size, found.q_lora_rank) == ("deepseek_v2", 64, 0)
    assert found.hf_config == str(tmp_path / "shape.json")
    for keys, words in (
        ({"hf_config": "shape.json", "layers": 5}, "layers: is 5"),
        ({"hf_config": "shape.json", "preset": "v3"}, "preset: set beside hf_config"),
        ({"hf_config": "nothing.json"}, "cannot be read"),
        ({"family": "deepseek_v2", "router_bias_speed": 0.01}, "have no bias"),
        ({"preset": "v4"}, "preset: is 'v4'"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse({"model": keys}, source="test", bases=[tmp_path], only=frozenset({"model"}))
        assert words in str(caught.value)
