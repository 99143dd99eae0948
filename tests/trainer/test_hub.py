"""To the format of Hugging Face and back: transformers reads what we export, and a run starts from what it reads."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config

import trainer.export
from contract import config as configuration
from contract import manifest
from tests import crash
from tests.supervisor.schemas import check
from tests.trainer.conftest import ENVIRONMENT
from trainer.data.batches import stack
from trainer.data.prepare import Recipe, prepare
from trainer.data.reader import TokenReader
from trainer.export import ExportError, export
from trainer.reshape.hub import INDEX, hub_tensors, write_weights

pytestmark = pytest.mark.train

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "max_position_embeddings": 64,
}


def ciuic(*arguments):
    command = [sys.executable, "-P", "-m", "ciuic", *map(str, arguments)]
    return subprocess.run(
        command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=120, check=False
    )


def loss_of(model, data, samples):
    """On the samples that the trainer evaluates."""
    reader = TokenReader(data, "validation", length=32)
    batch = stack(reader, [number * reader.samples // samples for number in range(samples)])
    with torch.no_grad():
        logits = model(input_ids=batch[:, :-1]).logits
    return float(torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten()))


@pytest.mark.parametrize(("dtype", "stage"), [("fp32", 0), ("bf16", 1), ("fp32", 2), ("fp32", 3)])
def test_what_is_exported_computes_the_same(bench, tmp_path, corpus, dtype, stage):
    run = bench(precision={"dtype": dtype}, deepspeed={"zero_stage": stage}, run={"steps": 2})
    run.train()
    done = export(run.run, step=-1, target=None, dtype="fp32")
    assert done.step == 2
    model, told = AutoModelForCausalLM.from_pretrained(
        done.path, dtype=torch.float32, output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]  # noqa: PT018
    assert loss_of(model, corpus, 8) == pytest.approx(
        run.merged()[2]["val_loss"], rel=1e-5 if dtype == "fp32" else 2e-3
    )
    index = json.loads((tmp_path / "run" / "exports" / "step-000000002-fp32" / INDEX).read_text())
    assert "model.layers.1.mlp.experts.3.gate_proj.weight" in index["weight_map"]
    with pytest.raises(ExportError, match="exists already"):
        export(run.run, step=-1, target=None, dtype="fp32")


def test_logits_are_equal_and_files_are_cut(bench, tmp_path):
    """The model that computed, taken from the engine's own weights, and the exported one in several files."""
    from tests.trainer.test_reshape import newest, stored
    from trainer.model import model_class

    run = bench(deepspeed={"zero_stage": 2}, run={"steps": 1})
    run.train()
    ours = stored(newest(run), 2)
    own = torch.load(newest(run) / "rank-00000.pt", weights_only=False)
    config = AutoConfig.for_model(**own["architecture"])
    target = tmp_path / "cut"
    target.mkdir()
    write_weights(target, hub_tensors(ours, torch.bfloat16), shard_bytes=20_000)
    config.save_pretrained(target)
    assert len(list(target.glob("*.safetensors"))) > 3
    exported = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
    states = torch.load(newest(run) / "mp_rank_00_model_states.pt", weights_only=False)["module"]
    computed = model_class("deepseek_v3")._from_config(config, dtype=torch.bfloat16).eval()
    computed.load_state_dict(states)
    tokens = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        assert torch.equal(exported(tokens).logits, computed(tokens).logits)


def test_export_says_why_it_cannot(bench, tmp_path):
    run = bench(run={"steps": 1})
    with pytest.raises(ExportError, match="no valid checkpoint"):
        export(run.run, step=-1, target=None, dtype="bf16")
    run.train()
    shard = next(manifest.directories(run.run)[0].glob("*optim*"))
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(ExportError, match="bytes, the manifest says"):
        export(run.run, step=1, target=None, dtype="bf16")
    assert not list(run.run.path.glob("exports/*"))


@crash.needs_strace
@pytest.mark.parametrize(
    "kinds", [crash.CHANGES, pytest.param(crash.CALLS, marks=pytest.mark.slow)], ids=["changes", "all"]
)
def test_an_export_that_is_killed_at_any_call_is_whole_or_does_not_exist(bench, tmp_path, monkeypatch, kinds):
    run = bench(world_size=1, run={"steps": 1}, model={"layers": 1})
    run.train()
    program = crash.Program(
        script=Path(__file__).with_name("killed_export.py"),
        prepare=lambda place: None,
        arguments=lambda place: [str(run.run.path), str(place / "out")],
        threads=False,
        kinds=kinds,
    )
    monkeypatch.setattr(trainer.export, "write_weights", partial(write_weights, shard_bytes=25_000))
    kills = tmp_path / "kills"
    kills.mkdir()
    whole = []
    for kill in program.every_kill(kills, at_once=1):
        target = kill.place / "out"
        whole.append(target.exists())
        if not target.exists():
            export(run.run, step=-1, target=target, dtype="bf16")
            assert list(kill.place.iterdir()) == [target], kill
        wanted = kills / "undisturbed" / "out"
        assert contents(target) == contents(wanted), kill
    assert len(list(wanted.glob("*.safetensors"))) > 1
    assert whole == sorted(whole), "once it exists, it is whole"
    assert {*whole} == {False, True}


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def weights(place, kind, **changes):
    """A directory as the hub has it, written by transformers itself."""
    torch.manual_seed(3)
    config = {"v2": DeepseekV2Config, "v3": DeepseekV3Config}[kind](**SHAPE | changes)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(place, max_shard_size="40KB")
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "dtype", "stage"), [("v3", "fp32", 0), ("v2", "fp32", 3), ("v3", "bf16", 2)]
)
def test_a_run_starts_from_weights_once(bench, tmp_path, corpus, kind, dtype, stage):
    place = tmp_path / "weights"
    model = weights(place, kind)
    (place / "tokenizer_config.json").write_text('{"kept": 1}')
    run = bench(
        # The router's bias takes signs: it would move by one step at any rate.
        shape={"init_from": str(place), "router_bias_speed": 0.0},
        precision={"dtype": dtype},
        deepspeed={"zero_stage": stage},
        optimizer={"lr": 1e-9},
        run={"steps": 1},
        data={"evaluate_interval_steps": 1},
    )
    resolved = configuration.read_resolved(run.run.config)
    assert (resolved.model.layers, resolved.model.vocab_size) == (2, 300)
    run.train()
    # With this rate the step changes nothing that shows.
    before = loss_of(model, corpus, 8)
    assert run.merged()[1]["val_loss"] == pytest.approx(before, rel=1e-5 if dtype == "fp32" else 3e-3)
    record = json.loads((run.run.start / "start.json").read_text())
    assert record["path"] == str(place)
    assert len(record["weights"]) > 1
    for path in place.iterdir():
        path.unlink()
    run.run.config.write_text(run.run.config.read_text().replace("steps = 1\n", "steps = 2\n", 1))
    run.world_size = 1
    assert "carried over" in run.train().text()
    done = export(run.run, step=-1, target=None, dtype="bf16")
    assert "tokenizer_config.json" in done.tokenizer
    assert str(tmp_path) not in (done.path / "config.json").read_text()
    loaded = AutoModelForCausalLM.from_pretrained(done.path, dtype=torch.float32)
    assert type(loaded) is type(model)


def test_weights_that_do_not_fit(bench, tmp_path):
    place = tmp_path / "weights"
    weights(place, "v3")
    with pytest.raises(configuration.ConfigError, match=r"model\.layers: is 5"):
        bench("a", shape={"init_from": str(place), "layers": 5})
    with pytest.raises(configuration.ConfigError, match=r"config\.json cannot be read"):
        bench("b", shape={"init_from": str(tmp_path / "nowhere")})
    settings = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(
        json.dumps(settings | {"quantization_config": {"quant_method": "fp8"}})
    )
    with pytest.raises(configuration.ConfigError, match="quantised"):
        bench("c", shape={"init_from": str(place)})
    (place / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 3}))
    run = bench("d", shape={"init_from": str(place)}, run={"steps": 1})
    generation = run.start()
    assert generation.codes() == [78, 78], generation.text()
    assert "model.layers.2" in generation.pages[0].read().exception["text"]


def test_a_bpe_run_is_exported_with_its_tokenizer(bench, tmp_path):
    target = tmp_path / "bpe"
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("hello wide world, how are you? " * 400)
    prepare([tmp_path / "a.txt", tmp_path / "b.txt"], target, Recipe(vocab_size=300, validation_share=0.1))
    run = bench(data={"path": str(target), "evaluate_interval_steps": 0}, run={"steps": 1})
    run.train()
    done = ciuic("export", "run", "--root", tmp_path, "--out", tmp_path / "out", "--step", 1, "--json")
    assert done.returncode == 0, done.stderr
    found = check("export", done.stdout)
    assert (found["step"], found["path"]) == (1, str(tmp_path / "out"))
    assert "tokenizer.json" in found["tokenizer"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.decode(tokenizer("hello world").input_ids) == "hello world"
