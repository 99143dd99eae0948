"""Predicting the token after the next: transformers' own layer gives the same loss, and drafts with our weights."""

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import MtpModel
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3ForCausalLM

from contract import config as configuration
from contract.config.memory import Memory
from contract.config.model import Model
from tests.trainer.test_reshape import TOLERANCE, change, train_until
from trainer.ahead import take_ahead_loss
from trainer.export import export
from trainer.levers import thrifty
from trainer.model import architecture, build_model
from trainer.step import summed_loss

pytestmark = pytest.mark.train

LAYERS, VOCABULARY = 2, 64


class Bare:
    """What `summed_loss` needs of an engine."""

    def __init__(self, module):
        self.module = module

    def __call__(self, **inputs):
        return self.module(**inputs)


def network(weight):
    shape = architecture(
        Model(layers=LAYERS, mtp_loss_weight=weight), vocab_size=VOCABULARY, sequence_length=32
    )
    return build_model(shape, seed=3)


def by_transformers(model, plain, batch):
    """The loss of transformers' layer, which it has for inference, with these weights."""
    plain.config.num_mtp_layers = 1
    theirs, state = MtpModel(plain, 1), {}
    for name, value in model.model.layers[LAYERS].state_dict().items():
        own = name.split(".")[0] in {"enorm", "hnorm", "eh_proj"}
        place = name if own else name.replace("shared_head.norm", "post_norm")
        state[f"layers.0.{place}" if own or "post_norm" in place else f"layers.0.mtp_block.{place}"] = value
    assert set(theirs.load_state_dict(state, strict=False).missing_keys) == {
        "embed_tokens.weight",
        "shared_head.weight",
    }
    seen = plain.model(input_ids=batch[:, :-1]).last_hidden_state
    places = torch.arange(1, batch.shape[1] - 1).unsqueeze(0)
    further = theirs.forward_layer(0, seen[:, :-1], places, None, input_ids=batch[:, 1:-1])
    return torch.nn.functional.cross_entropy(
        plain.lm_head(further).flatten(0, 1), batch[:, 2:].flatten(), reduction="sum"
    )


def test_the_loss_is_that_of_transformers_and_the_network_is_the_same():
    model, plain = network(0.3), network(0.0)
    named = dict(model.named_parameters())
    assert all(torch.equal(named[name], value) for name, value in plain.named_parameters())
    batch = torch.randint(0, VOCABULARY, (3, 17), generator=torch.Generator().manual_seed(1))
    loss = summed_loss(Bare(model), batch)
    assert loss.item() == summed_loss(Bare(plain), batch).item()
    ahead = take_ahead_loss(model)
    assert ahead.item() == pytest.approx(by_transformers(model, plain, batch).item(), rel=1e-6)
    (loss + 0.3 * ahead).backward()
    whole = {name: value.grad.clone() for name, value in named.items()}
    model.zero_grad()
    thrifty(model, Memory(loss_chunk_tokens=8, recompute="all"))
    loss, again = summed_loss(Bare(model), batch), take_ahead_loss(model)
    assert again.item() == pytest.approx(ahead.item(), rel=1e-6)
    (loss + 0.3 * again).backward()
    for name, value in named.items():
        assert torch.allclose(value.grad, whole[name], atol=1e-5), name
    model.eval()
    summed_loss(Bare(model), batch)
    assert take_ahead_loss(model) is None, "an evaluation has no use for it"
    assert take_ahead_loss(plain) is None


@pytest.mark.filterwarnings("ignore:.*generation flags.*")
def test_it_trains_resumes_elsewhere_and_drafts(bench, monkeypatch):
    """Two ranks and ZeRO 3, then one rank and ZeRO 1, against two ranks and ZeRO 0; exported, it drafts in transformers."""
    keys = {
        "precision": {"dtype": "fp32"},
        "batch": {"global_batch_size": 8, "micro_batch_size": 2},
        "run": {"steps": 6},
        "model": {"mtp_loss_weight": 0.3},
    }
    whole = bench("whole", world_size=2, deepspeed={"zero_stage": 0}, **keys)
    whole.train()
    parts = bench(
        "parts", world_size=2, deepspeed={"zero_stage": 3}, memory={"loss_chunk_tokens": 40}, **keys
    )
    train_until(parts, 3)
    parts.world_size = 1
    change(parts, deepspeed={"zero_stage": 1}, job={"ranks_per_node": 1})
    parts.train()
    assert parts.losses() == pytest.approx(whole.losses(), rel=TOLERANCE["fp32"])
    found, wanted = parts.merged(), whole.merged()
    ahead = [found[step]["mtp_loss"] for step in found]
    assert ahead == pytest.approx([wanted[step]["mtp_loss"] for step in wanted], rel=TOLERANCE["fp32"])
    assert ahead[-1] < ahead[0]
    layers = configuration.read_resolved(parts.run.config).model.layers
    assert len(found[6]["router_violation"]) == layers, "all but the dense first, and the extra one"
    done = export(parts.run, step=-1, target=None, dtype="fp32")
    pattern = [
        rf"model\.layers\.{layers}\."
    ]  # transformers knows the layer's number of the published size only
    monkeypatch.setattr(DeepseekV3ForCausalLM, "_keys_to_ignore_on_load_unexpected", pattern)
    model, told = AutoModelForCausalLM.from_pretrained(
        done.path, dtype=torch.float32, output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    prompt = torch.tensor([[5, 9, 3]])
    plain = model.generate(prompt, max_new_tokens=12, do_sample=False)
    assert torch.equal(model.generate(prompt, max_new_tokens=12, do_sample=False, use_mtp=True), plain)
