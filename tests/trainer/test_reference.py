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
WITH_MUON = {
    **SETTINGS,
    "optimizer": {"gradient_clipping": 0.5, "name": "muon"},
    "batch": {"global_batch_size": 12},  # divides by two ranks and by three
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


class Plain:
    """torch's own optimizers, one parameter a group, and for Muon one matrix a group."""

    def __init__(self, named, wanted):
        self.views, adamw, muon = [], [], []
        for name, parameter in named:
            if (
                wanted.name == "muon"
                and ".layers." in name
                and parameter.dim() > 1
                and "gate.weight" not in name
            ):
                whole = parameter.data.view(-1, *parameter.shape[-2:])
                stack = [half for one in whole for half in one.chunk(2)] if "gate_up_proj" in name else whole
                for matrix in stack:
                    view = torch.nn.Parameter(matrix)
                    assert view.data_ptr() == matrix.data_ptr()
                    muon.append({"params": [view], "weight_decay": wanted.weight_decay, "name": name})
                self.views.append((parameter, muon[-len(stack) :], "gate_up_proj" in name))
            else:
                decay = wanted.weight_decay if parameter.dim() >= 2 and "embed" not in name else 0.0
                adamw.append({"params": [parameter], "weight_decay": decay, "name": name})
        betas = (wanted.beta1, wanted.beta2)
        self.optimizers = [torch.optim.AdamW(adamw, lr=0.0, betas=betas, eps=wanted.eps)]
        if muon:
            self.optimizers.append(
                torch.optim.Muon(muon, lr=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw")
            )

    def step(self, rate_of):
        for parameter, groups, joined in self.views:
            whole = parameter.grad.view(-1, *parameter.shape[-2:])
            stack = [half for one in whole for half in one.chunk(2)] if joined else whole
            for group, gradient in zip(groups, stack, strict=True):
                group["params"][0].grad = gradient
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate_of(group["name"])
            optimizer.step()


def reference(config, path):
    """(losses, weights) of the plain loop over whole batches."""
    batch, wanted = config.batch, config.optimizer
    reader = TokenReader(path, "train", length=batch.sequence_length)
    order = Sampler(samples=reader.samples, seed=config.run.seed)
    shape = architecture(config.model, vocab_size=reader.vocab_size, sequence_length=batch.sequence_length)
    model = build_model(shape, seed=config.run.seed)
    named = sorted(model.named_parameters())
    optimizer = Plain(named, wanted)
    losses = []
    for step in range(1, STEPS + 1):
        positions = range((step - 1) * batch.global_batch_size, step * batch.global_batch_size)
        tokens = stack(reader, [order.sample(at) for at in positions])
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.gradient_clipping)
        optimizer.step(lambda name, step=step: rate(name, step, wanted.lr))
        model.zero_grad()
        losses.append(float(loss.detach()))
    return losses, {name: p.detach() for name, p in named}


@pytest.fixture(scope="module")
def plain(corpus):
    kept = {}

    def of(run):
        config = configuration.read_resolved(run.run.config)
        case = (config.optimizer.name, torch.ones(1).bfloat16().dtype)
        if case not in kept:
            threads = torch.get_num_threads()
            torch.set_num_threads(
                1
            )  # as the ranks; and many small products wait for each other on a busy machine
            kept[case] = reference(config, corpus)
            torch.set_num_threads(threads)
        return kept[case]

    return of


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_losses_and_weights_are_those_of_a_plain_loop(bench, plain, ranks, stage):
    """Batches of 8 in micro-batches of 2: accumulation over 4 or 2. Tolerances are those of float32 sums reordered."""
    run = bench(world_size=ranks, deepspeed={"zero_stage": stage}, **SETTINGS)
    compare(run, plain, losses_within=2e-5, weights_within=2e-4)


# Muon makes its updates orthogonal in bfloat16, where a sum in another order is now and then another last bit of 8.
# Computed in float32, in the trainer and in torch, it is as close as everything else.
EXACT = "import trainer.preload, torch; torch.Tensor.bfloat16 = torch.Tensor.float\n"


@pytest.mark.parametrize(
    ("stage", "ranks", "offload"), [(0, 1, False), (1, 3, False), (2, 2, True), (3, 3, False)]
)
def test_muon_is_torchs_own_however_zero_cuts_the_matrices(bench, plain, monkeypatch, stage, ranks, offload):
    """Three ranks cut nearly every matrix, and the stack of experts between them."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    run = bench(world_size=ranks, deepspeed={"zero_stage": stage, "offload_optimizer": offload}, **WITH_MUON)
    compare(run, plain, before=EXACT, losses_within=2e-5, weights_within=2e-4)


def test_muon_as_it_computes(bench, plain):
    compare(bench(deepspeed={"zero_stage": 2}, **WITH_MUON), plain, losses_within=1e-3, weights_within=2e-2)


def compare(run, plain, *, losses_within, weights_within, before=""):
    generation = run.start(CIUIC_TEST_BEFORE=before + WEIGHTS)
    assert generation.codes() == [0] * run.world_size, generation.text()
    losses, weights = plain(run)
    assert run.losses() == pytest.approx(losses, rel=losses_within)
    found = torch.load(run.run.path / "weights.pt", weights_only=True)
    assert set(found) == set(weights)
    distances = {name: float((found[name] - value).norm() / value.norm()) for name, value in weights.items()}
    assert max(distances.values()) < weights_within, distances
