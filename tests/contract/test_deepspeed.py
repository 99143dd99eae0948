"""DeepSpeed's JSON as users have it: accepted as it stands, read into our sections, never half ignored."""

import json
from pathlib import Path

import pytest

from contract.config import ConfigError, RunConfig, dump, load, read_resolved

# The two configurations of the published practices, to the letter.
FP8_ZERO3 = {
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "fp8": {"enabled": True, "format": "HYBRID"},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
}
FP16_ZERO2 = {
    "train_batch_size": 256,
    "gradient_accumulation_steps": 4,
    "fp16": {"enabled": True},
    "zero_optimization": {"stage": 2, "allgather_partitions": True, "reduce_scatter": True},
}


def loaded(tmp_path: Path, settings: dict, text: str = "", ranks: int = 2) -> RunConfig:
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    recipe = tmp_path / "run.toml"
    recipe.write_text(
        f'[run]\nsteps = 1\n[job]\nranks_per_node = {ranks}\n[deepspeed]\nconfig = "ds.json"\n{text}'
    )
    return load(recipe, only=frozenset(RunConfig.model_fields) - {"data"})


def problems(tmp_path: Path, settings: dict, text: str = "", ranks: int = 2) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, settings, text, ranks)
    return {problem.where: problem.what for problem in caught.value.problems}


def test_fp8_with_zero_3_and_offload(tmp_path: Path) -> None:
    config = loaded(tmp_path, FP8_ZERO3)
    assert (config.precision.dtype, config.deepspeed.zero_stage) == ("fp8", 3)
    assert config.deepspeed.inline == {"zero_optimization": {"offload_param": {"device": "cpu"}}}


def test_fp16_with_zero_2(tmp_path: Path) -> None:
    config = loaded(tmp_path, FP16_ZERO2)
    assert (config.precision.dtype, config.deepspeed.zero_stage) == ("fp16", 2)
    assert (config.batch.global_batch_size, config.batch.micro_batch_size) == (256, 32)
    assert config.batch.accumulation_steps(2) == 4
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(dump(config))
    assert read_resolved(resolved) == config


def test_inline_is_the_same_as_a_file(tmp_path: Path) -> None:
    recipe = tmp_path / "inline.toml"
    tables = """
        [deepspeed.inline]
        train_batch_size = 256
        gradient_accumulation_steps = 4
        fp16 = { enabled = true }
        zero_optimization = { stage = 2, allgather_partitions = true, reduce_scatter = true }
        """
    recipe.write_text(f"[run]\nsteps = 1\n[job]\nranks_per_node = 2\n{tables}\n")
    found = load(recipe, only=frozenset(RunConfig.model_fields) - {"data"})
    assert found == loaded(tmp_path, FP16_ZERO2)


@pytest.mark.parametrize(
    ("settings", "text", "where", "told"),
    [
        ({"train_batch_size": 256}, "[batch]\nglobal_batch_size = 64\n", "batch.global_batch_size", "train_batch_size says 256"),
        ({"fp16": {"enabled": True}}, '[precision]\ndtype = "bf16"\n', "precision.dtype", "fp16.enabled says 'fp16'"),
        ({"zero_optimization": {"stage": 3}}, "zero_stage = 1\n", "deepspeed.zero_stage", "zero_optimization.stage says 3"),
        ({"gradient_clipping": 2}, "[optimizer]\ngradient_clipping = 0.5\n", "optimizer.gradient_clipping", "says 2.0"),
        (FP16_ZERO2, "[batch]\nmicro_batch_size = 16\n", "batch.micro_batch_size", "gradient_accumulation_steps says 32"),
    ],
)  # fmt: skip
def test_an_explicit_key_of_ours_must_say_the_same(tmp_path, settings, text, where, told) -> None:
    found = problems(tmp_path, settings, text)
    assert told in found[where]
    assert "DeepSpeed JSON" in found[where]


def test_the_same_said_twice_is_fine(tmp_path: Path) -> None:
    config = loaded(tmp_path, FP16_ZERO2, "[batch]\nglobal_batch_size = 256\nmicro_batch_size = 32\n")
    assert config.batch.global_batch_size == 256


def test_any_two_of_the_batch_give_the_third(tmp_path: Path) -> None:
    micro_and_steps = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}
    assert loaded(tmp_path, micro_and_steps).batch.global_batch_size == 64
    all_three = {**micro_and_steps, "train_batch_size": 128}
    assert "batch.micro_batch_size" in problems(tmp_path, all_three)
    with pytest.raises(ConfigError, match=r"256 does not divide into the DeepSpeed JSON's .* 4 \* 3 ranks"):
        loaded(tmp_path, FP16_ZERO2, ranks=3)


@pytest.mark.parametrize(
    ("settings", "where", "told"),
    [
        ({"zero_optimisation": {}}, "zero_optimisation", 'did you mean "zero_optimization"?'),
        ({"zero_optimization": {"stge": 2}}, "zero_optimization.stge", 'did you mean "stage"?'),
        ({"fp16": {"enable": True}}, "fp16.enable", 'did you mean "enabled"?'),
        ({"fp8": {"enabled": True, "margin": 1}}, "fp8.margin", "unknown key"),
        ({"fp16": True}, "fp16", "a table was expected"),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler", "[schedule]"),
        ({"nebula": {}}, "nebula", "removed"),
    ],
)
def test_keys_that_nobody_would_read(tmp_path, settings, where, told) -> None:
    assert told in problems(tmp_path, settings)[f"deepspeed.config.{where}"]


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"fp8": {"enabled": True, "format": "E4M3"}}, "deepspeed.fp8.format"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "deepspeed.fp16"),
        ({"train_batch_size": "many"}, "deepspeed.train_batch_size"),
        ({"gradient_accumulation_steps": 0}, "deepspeed.gradient_accumulation_steps"),
        ({"optimizer": {"type": "Lamb"}}, "deepspeed.optimizer.type"),
        ({"optimizer": {"type": "Muon"}}, "deepspeed.optimizer.type"),
        ({"optimizer": {"type": "AdamW", "params": {"momentum": 1}}}, "deepspeed.optimizer.params.momentum"),
    ],
)
def test_values_that_cannot_be_used(tmp_path, settings, where) -> None:
    assert where in problems(tmp_path, settings)


def test_expert_parallelism_of_the_json_is_our_key(tmp_path) -> None:
    apart = {"enabled": True, "autoep_size": 2, "preset_model": "deepseek_v3", "comm_backend": "comm"}
    config = loaded(tmp_path, {"expert_parallel": apart})
    assert config.deepspeed.expert_parallel == 2
    assert config.deepspeed.inline == {
        "expert_parallel": {"preset_model": "deepseek_v3", "comm_backend": "comm"}
    }
    assert loaded(tmp_path, {"expert_parallel": {**apart, "enabled": False}}).deepspeed.expert_parallel == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[deepspeed]\nexpert_parallel = 3", "3 does not divide 2 ranks"),
        ("[model]\nrouted_experts = 5\n[deepspeed]\nexpert_parallel = 2", "2 does not divide 5 experts"),
        ("[deepspeed]\nexpert_parallel = 2\nzero_stage = 1", "needs zero_stage = 2 or 3"),
        ('[optimizer]\nname = "muon"\n[deepspeed]\nexpert_parallel = 2', "use adamw"),
        ('[batch]\nadaptive = "balance"\n[deepspeed]\nexpert_parallel = 2', "use another"),
        ("[model]\ncompile_layers = true\n[deepspeed]\nexpert_parallel = 2", "leave compile_layers off"),
    ],
)
def test_what_expert_parallelism_does_not_go_with(tmp_path, text, told) -> None:
    recipe = tmp_path / "run.toml"
    recipe.write_text(f"[run]\nsteps = 1\n[job]\nranks_per_node = 2\n{text}\n")
    with pytest.raises(ConfigError, match=rf"deepspeed.expert_parallel: .*{told}"):
        load(recipe)


def test_weights_on_the_host_need_zero_3(tmp_path) -> None:
    recipe = tmp_path / "run.toml"
    recipe.write_text("[run]\nsteps = 1\n[deepspeed]\noffload_param = true\n")
    with pytest.raises(ConfigError, match=r"deepspeed\.offload_param: ZeRO 2 .* use zero_stage = 3"):
        load(recipe)


def test_optimizer_auto_and_switched_off_formats(tmp_path: Path) -> None:
    adamw = {
        "type": "AdamW",
        "params": {"lr": 1e-4, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": "auto"},
    }
    config = loaded(tmp_path, {"optimizer": adamw, "train_batch_size": "auto", "bf16": {"enabled": False}})
    assert (config.optimizer.lr, config.optimizer.beta2, config.optimizer.eps) == (1e-4, 0.99, 1e-6)
    assert config.optimizer.weight_decay == 0.1
    assert config.precision.dtype == "fp32"
    assert config.deepspeed.inline == {}
    assert loaded(tmp_path, {"fp16": {"enabled": False}}).precision.dtype == "bf16"


def test_a_json_that_is_not_there(tmp_path: Path) -> None:
    recipe = tmp_path / "run.toml"
    recipe.write_text('[run]\nsteps = 1\n[deepspeed]\nconfig = "ds.json"\n')
    with pytest.raises(ConfigError, match=r"deepspeed.config: .*ds\.json: .*No such file"):
        load(recipe)
    assert load(recipe, only=frozenset({"run"})).run.steps == 1
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 0}}')
    with pytest.raises(ConfigError, match="0 with bf16 loses optimizer state"):
        load(recipe)


def test_another_program_reads_its_json_itself(tmp_path: Path) -> None:
    config = loaded(tmp_path, FP16_ZERO2, "[job.environment]\n[batch]\n", ranks=1)
    assert config.batch.micro_batch_size == 64
    (tmp_path / "run.toml").write_text(
        '[run]\nsteps = 1\n[job]\ncommand = ["true"]\n[deepspeed]\nconfig = "ds.json"\n'
    )
    other = load(tmp_path / "run.toml")
    assert other.deepspeed.inline == FP16_ZERO2
    assert other.batch.global_batch_size == 16
