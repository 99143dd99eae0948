"""How a network comes into being: the same for every division, and under ZeRO 3 never whole on a rank. Two ranks."""

import json

import pytest
import torch

from trainer.model import build_model, config_class

MEBI = 1 << 20
# Some 40 million parameters, 160 MB: what is allocated beside them does not hide a half of these.
SHAPE = {"hidden_size": 512, "intermediate_size": 2048, "layers": 14, "dense_layers": 13, "vocab_size": 512}
# Ends every rank right after its network is there, with what memory it took and what it holds.
CONSTRUCTION = """
import hashlib, json, os, sys, trainer.preload, torch, deepspeed, trainer.assembly as assembly
import torch.distributed as dist
def kilobytes(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
build = assembly.build_model
def measured(*arguments, **named):
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = kilobytes("VmRSS")
    model = build(*arguments, **named)
    peak, digest, held = kilobytes("VmHWM") - before, hashlib.sha256(), 0
    for name, parameter in sorted(model.named_parameters()):
        held += getattr(parameter, "ds_tensor", parameter).nbytes
        with deepspeed.zero.GatheredParameters([parameter]):
            digest.update(name.encode() + parameter.detach().bfloat16().view(torch.uint8).numpy().tobytes())
    whole = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
    told = {"peak": peak * 1024, "held": held, "whole": whole, "weights": digest.hexdigest()}
    open(os.environ["CIUIC_RUN_DIR"] + f"/told-{os.environ['RANK']}.json", "w").write(json.dumps(told))
    dist.barrier()
    os._exit(0)
assembly.build_model = measured
"""


def construction(bench, name, stage, dtype):
    run = bench(name, model=SHAPE, deepspeed={"zero_stage": stage}, precision={"dtype": dtype})
    generation = run.start(CIUIC_TEST_BEFORE=CONSTRUCTION)
    assert generation.codes() == [0, 0], generation.text()
    return [json.loads((run.run.path / f"told-{rank}.json").read_text()) for rank in range(2)]


def test_a_head_that_is_the_embeddings_stays_so_and_nothing_is_left_without_memory():
    small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8}
    heads = {
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "n_routed_experts": 4,
    }
    for tied in (False, True):
        config = config_class("deepseek_v3")(
            **small,
            **heads,
            first_k_dense_replace=1,
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
            num_mtp_layers=0,
            tie_word_embeddings=tied,
        )
        model, again = (build_model(config, seed=seed) for seed in (1, 1))
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
        assert not any(value.is_meta for value in model.state_dict().values())
        named = dict(again.named_parameters())
        assert all(torch.equal(value, named[name]) for name, value in model.named_parameters())
        other = dict(build_model(config, seed=2).named_parameters())
        name = "model.layers.1.mlp.experts.down_proj"
        assert not torch.equal(named[name], other[name])


@pytest.mark.train
def test_zero_3_begins_with_the_same_weights_and_no_rank_holds_them_all(bench):
    whole = construction(bench, "whole", 2, "fp32")
    divided = construction(bench, "divided", 3, "fp32")
    short = construction(bench, "short", 3, "bf16")
    assert len({told["weights"] for told in (*whole, *divided, *short)}) == 1
    size = 4 * whole[0]["whole"]
    assert size > 128 * MEBI
    assert all(told["peak"] > 0.95 * size for told in whole)
    # Half of it, and for a moment one module's parameters.
    assert all(told["peak"] < 0.75 * size for told in divided), (size, divided)
    assert all(told["peak"] < 0.45 * size for told in short), (size, short)
    assert all(told["held"] < 0.26 * size for told in short)
