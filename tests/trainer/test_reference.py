"""The whole trainer against a plain loop in float32 with nothing but torch: same losses, same weights.

The loop knows the model, the data and the formulas. It knows no DeepSpeed, no groups of ours and no schedule of ours.
"""

import math

import pytest
import torch

from contract import config as configuration
from contract.sampling import Sampler
from trainer.data.batches import stack
from trainer.data.reader import TokenReader
from trainer.model import architecture, build_model

pytestmark = pytest.mark.train

STEPS, WARMUP, LAYERS = 20, 6, 2
SETTINGS = {
    "run": {"steps": STEPS},
    "precision": {"dtype": "fp32"},
    "schedule": {"warmup": WARMUP},
    "optimizer": {"gradient_clipping": 0.5},
    "data": {"evaluate_interval_steps": 0},
    "checkpoint": {"interval_steps": STEPS},
}
# What a rank writes down at its end, for the comparison of the weights.
WEIGHTS = """
import os, torch, trainer.preload, deepspeed, trainer.loop as loop
train = loop.Training.train
def recorded(self, progress):
    code = train(self, progress)
    whole = {}
    for name, parameter in sorted(self.engine.module.named_parameters()):
        with deepspeed.zero.GatheredParameters([parameter]):
            whole[name] = parameter.detach().clone()
    if self.ranks.rank == 0:
        torch.save(whole, os.environ["CIUIC_RUN_DIR"] + "/weights.pt")
    return code
loop.Training.train = recorded
"""


def rate(name: str, step: int, peak: float) -> float:
    """The issue's formula for one parameter, half a cosine to a tenth after a warm-up of layer * warm-up / layers."""
    if ".layers." in name:
        layer = int(name.split(".layers.")[1].split(".", maxsplit=1)[0])
    else:
        layer = 0 if "embed" in name else LAYERS - 1
    start = layer * WARMUP / LAYERS
    if step < start:
        return peak * step / start
    return peak * (0.1 + 0.9 * (1 + math.cos(math.pi * (step - start) / (STEPS - start))) / 2)


def reference(config, path):
    """(losses, weights) of the plain loop over whole batches."""
    batch, wanted = config.batch, config.optimizer
    reader = TokenReader(path, "train", length=batch.sequence_length)
    order = Sampler(samples=reader.samples, seed=config.run.seed)
    shape = architecture(config.model, vocab_size=reader.vocab_size, sequence_length=batch.sequence_length)
    model = build_model(shape, seed=config.run.seed)
    named = sorted(model.named_parameters())
    groups = [
        {"params": [p], "weight_decay": wanted.weight_decay if p.dim() >= 2 and "embed" not in name else 0.0}
        for name, p in named
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(wanted.beta1, wanted.beta2), eps=wanted.eps)
    losses = []
    for step in range(1, STEPS + 1):
        for (name, _), group in zip(named, optimizer.param_groups, strict=True):
            group["lr"] = rate(name, step, wanted.lr)
        positions = range((step - 1) * batch.global_batch_size, step * batch.global_batch_size)
        tokens = stack(reader, [order.sample(at) for at in positions])
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.gradient_clipping)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, {name: p.detach() for name, p in named}


@pytest.fixture(scope="module")
def plain(corpus):
    kept = {}

    def of(run):
        if not kept:
            kept["found"] = reference(configuration.read_resolved(run.run.config), corpus)
        return kept["found"]

    return of


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_losses_and_weights_are_those_of_a_plain_loop(bench, plain, ranks, stage):
    """Batches of 8 in micro-batches of 2: accumulation over 4 or 2. Tolerances are those of float32 sums reordered."""
    run = bench(world_size=ranks, deepspeed={"zero_stage": stage}, **SETTINGS)
    generation = run.start(CIUIC_TEST_BEFORE=WEIGHTS)
    assert generation.codes() == [0] * ranks, generation.text()
    losses, weights = plain(run)
    assert run.losses() == pytest.approx(losses, rel=2e-5)
    found = torch.load(run.run.path / "weights.pt", weights_only=True)
    assert set(found) == set(weights)
    for name, value in weights.items():
        distance = (found[name] - value).norm() / value.norm()
        assert distance < 2e-4, (name, float(distance))
