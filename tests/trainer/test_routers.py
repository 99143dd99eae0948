"""The balance of the experts: formulas against the paper's letters, the update on real ranks, and what it is for."""

import pytest
import torch

from trainer.routers import load_of, sequence_loss

TEXT = {"data": {"evaluate_interval_steps": 0}, "precision": {"dtype": "fp32"}}
BIASES = """
import os, torch, trainer.preload, trainer.loop as loop
train = loop.Training.train
def recorded(self, progress):
    code = train(self, progress)
    biases = {n: b.clone() for n, b in self.engine.module.named_buffers() if "score_correction" in n}
    torch.save(biases, f"{os.environ['CIUIC_RUN_DIR']}/bias-{os.environ['CIUIC_GENERATION']}-{self.ranks.rank}.pt")
    return code
loop.Training.train = recorded
"""


def biases(run, generation, rank):
    return torch.load(run.run.path / f"bias-{generation}-{rank}.pt", weights_only=True)


def test_the_load_of_a_layer():
    found = load_of([[4, 4, 4, 4], [16, 0, 0, 0], [0, 0, 0, 0]])
    assert found.violation == (0.0, 3.0, -1.0)
    assert found.starved == (0, 3, 4)


def test_the_balance_loss_is_the_papers_formula():
    """Equations 17 to 20 letter by letter: two sequences of five tokens, two of four experts each."""
    torch.manual_seed(3)
    logits = torch.randn(10, 4, dtype=torch.float64).float()
    wanted = 0.0
    for sequence in logits.sigmoid().view(2, 5, 4):
        for expert in range(4):
            chosen = sum(expert in token.topk(2).indices.tolist() for token in sequence)
            mean = sum(float(token[expert] / token.sum()) for token in sequence) / 5
            wanted += 5 * (4 / (2 * 5) * chosen) * mean
    assert float(sequence_loss(logits, 2, experts_per_token=2, sigmoid=True)) == pytest.approx(
        wanted, rel=1e-6
    )
    alone = [sequence_loss(part, 1, experts_per_token=2, sigmoid=True) for part in logits.split(5)]
    assert float(sum(alone)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.train
def test_a_router_that_collapses_stays_balanced_with_the_update(bench):
    """Eight experts, two for each token: a violation of 3 is all tokens on two of them."""
    found = {}
    for speed in (0.0, 0.02):
        run = bench(
            f"speed-{speed}",
            world_size=1,
            **TEXT,
            run={"steps": 120},
            model={"routed_experts": 8, "router_bias_speed": speed},
            schedule={"kind": "constant", "warmup": 0},
            checkpoint={"interval_steps": 120},
        )
        run.train()
        rows = run.steps(1)[-20:]
        found[speed] = [
            sum(row[key][0] for row in rows) / 20 for key in ("router_violation", "router_starved")
        ]
    assert found[0.0][0] > 2, found
    # The text is this repository's own, so how far it comes in 120 steps moves with it.
    assert found[0.02][0] < found[0.0][0] / 2, found
    assert found[0.02][1] < 0.5, found


@pytest.mark.train
@pytest.mark.parametrize("stage", [1, 3])
def test_biases_are_the_same_on_all_ranks_and_after_a_resume(bench, stage):
    run = bench(
        **TEXT,
        run={"steps": 7},  # an odd number of equal steps up and down does not end at nought
        model={"router_bias_speed": 0.01, "balance_loss_weight": 0.01},
        deepspeed={"zero_stage": stage},
    )
    first = run.start(CIUIC_TEST_BEFORE=BIASES)
    assert first.codes() == [0, 0], first.text()
    again = run.start(CIUIC_TEST_BEFORE=BIASES, CIUIC_MAX_STEP="3")
    assert again.codes() == [0, 0], again.text()
    whole = {row["step"]: row for row in run.steps(1)}
    for row in run.steps(2):
        for key in ("loss", "grad_norm", "balance_loss", "router_violation", "router_starved"):
            assert row[key] == whole[row["step"]][key], (key, row)
    assert [row["step"] for row in run.steps(2)] == [4, 5, 6, 7]
    wanted = biases(run, 1, 0)
    assert all(bias.abs().max() > 0.005 for bias in wanted.values()), wanted
    for generation, rank in ((1, 1), (2, 0), (2, 1)):
        for name, bias in biases(run, generation, rank).items():
            assert torch.equal(bias, wanted[name]), (generation, rank, name)


@pytest.mark.train
def test_a_dropped_step_moves_no_bias(bench):
    """One step alone, whose loss is not finite: the load is told, the bias stays zero."""
    poison = """
import trainer.preload, trainer.step as step
plain = step.summed_loss
step.summed_loss = lambda engine, batch: plain(engine, batch) * float("nan")
"""
    run = bench(
        world_size=1, **TEXT, run={"steps": 1}, model={"router_bias_speed": 0.01}, numerics={"on_nan": "skip"}
    )
    generation = run.start(CIUIC_TEST_BEFORE=BIASES + poison)
    assert generation.codes() == [0], generation.text()
    assert "dropped" in run.steps(1)[0]
    assert all(not bias.any() for bias in biases(run, 1, 0).values())


@pytest.mark.train
def test_the_balance_loss_does_not_depend_on_how_the_batch_is_cut(bench):
    losses = []
    for name, world_size, micro in (("a", 2, 2), ("b", 1, 8)):
        run = bench(
            name,
            world_size=world_size,
            **TEXT,
            model={"balance_loss_weight": 0.5},
            batch={"micro_batch_size": micro},
        )
        run.train()
        losses.append([row[key] for row in run.steps(1) for key in ("loss", "grad_norm", "balance_loss")])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
