"""The trainer's groups and rates: the same as the plot's, and the config's whatever a checkpoint says."""

import math
import types

import pytest
import torch

from contract.config.optimizer import Optimizer
from contract.config.schedule import Schedule
from contract.schedule import Course, sampled
from trainer.groups import Layout, decays, follow_config, for_optimizer, groups_of, rate_group
from trainer.schedule import Rates


@pytest.fixture(scope="module")
def model():
    from contract.config.model import Model
    from trainer.model import architecture, build_model

    shape = Model(layers=3, hidden_size=32, intermediate_size=64, moe_intermediate_size=16)
    return build_model(architecture(shape, vocab_size=64, sequence_length=16), seed=1)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.embed_tokens.weight", 0),
        ("model.layers.0.self_attn.o_proj.weight", 1),
        ("model.layers.2.mlp.gate.weight", 3),
        ("model.layers.3.eh_proj.weight", 3),  # multi-token prediction comes after the last layer
        ("model.norm.weight", 3),
        ("lm_head.weight", 3),
    ],
)
def test_which_layer_a_parameter_belongs_to(name, group):
    assert rate_group(name, 3) == group


def test_decay_spares_norms_biases_and_the_embedding():
    assert decays("lm_head.weight", 2)
    assert decays("model.layers.1.mlp.experts.down_proj", 3)
    assert not decays("model.norm.weight", 1)
    assert not decays("model.layers.0.q_a_proj.bias", 2)
    assert not decays("model.embed_tokens.weight", 2)


def test_every_parameter_is_in_one_group_and_no_group_is_empty(model):
    for layout in Layout:
        groups = groups_of(model, 3, layout)
        names = [name for group in groups for name in group.names]
        assert sorted(names) == sorted(name for name, _ in model.named_parameters())
        assert all(group.names for group in groups)
    assert len(groups_of(model, 3, Layout.BY_DECAY)) == 2


def test_the_trainers_rates_are_those_of_the_plot(model):
    from contract.config import RunConfig

    config = RunConfig.model_validate({"run": {"steps": 40}, "schedule": {"warmup": 9}})
    course = Course(
        schedule=config.schedule, peak=config.optimizer.lr, layers=3, warmup=9 * 2048, end=40 * 2048
    )
    groups = groups_of(model, 3, Layout.BY_LAYER)
    optimizer = torch.optim.AdamW(for_optimizer(model, groups, weight_decay=0.1), lr=1.0)
    engine, rates, plot = types.SimpleNamespace(optimizer=optimizer), Rates(course, groups), sampled(config)
    assert list(plot["groups"]) == list(course.groups)
    for number, tokens in enumerate(plot["tokens"]):
        rates.write(engine, tokens)
        for found, group in zip(optimizer.param_groups, groups, strict=True):
            assert found["lr"] == plot["groups"][course.groups[group.rate]][number]


def test_the_config_wins_over_what_a_checkpoint_brings_back(model):
    groups = groups_of(model, 3, Layout.BY_LAYER)
    optimizer = torch.optim.AdamW(for_optimizer(model, groups, weight_decay=0.3), lr=1.0)
    follow_config(types.SimpleNamespace(optimizer=optimizer), groups, Optimizer(weight_decay=0.1, beta2=0.9))
    assert {found["weight_decay"] for found in optimizer.param_groups} == {0.1, 0.0}
    assert {found["betas"] for found in optimizer.param_groups} == {(0.9, 0.9)}


def test_the_pace_of_annealing_survives_a_checkpoint(model):
    course = Course(schedule=Schedule(adaptive_from=0.2), peak=1.0, layers=3, warmup=0, end=100)
    groups = groups_of(model, 3, Layout.BY_LAYER)
    first, second = Rates(course, groups), Rates(course, groups)
    for tokens in range(1, 60):
        first.observe(tokens, 2.0)
    second.restore(first.state())
    assert second.state() == first.state()
    assert first.state()["ahead"] > 0.1
    second.restore({})
    assert second.state()["ahead"] == 0


@pytest.mark.train
def test_a_resume_follows_the_schedule_of_the_config(bench):
    from contract import config as configuration

    run = bench(
        run={"steps": 4}, checkpoint={"interval_steps": 2}, schedule={"kind": "constant", "warmup": 0}
    )
    run.train()
    changed = configuration.read_resolved(run.run.config).model_dump(mode="json")
    changed["run"]["steps"] = 8
    changed["schedule"].update(kind="quarter_cosine", floor_ratio=0.0, adaptive_from=0.5)
    run.run.config.write_text(configuration.dump(configuration.RunConfig.model_validate(changed)))
    text = run.train().text()
    assert "starting from step-000000004" in text
    rates = [line["lr"] for line in run.merged().values()]
    assert rates[:4] == [3e-3] * 4
    assert rates[4] == pytest.approx(3e-3 * math.cos(math.pi / 2 * 5 / 8))
    assert rates[7] == pytest.approx(0, abs=1e-9)  # at the end of the new config, whatever was saved


OLDER = """
import trainer.preload, trainer.assembly as assembly, trainer.engine as engine
from trainer.checkpoint import Checkpoints
from trainer.groups import Layout, groups_of
own_state = Checkpoints._own_state
def older(self, engine, progress):
    state = own_state(self, engine, progress)
    return {key: state[key] for key in ("progress", "random", "parameters")}
Checkpoints._own_state = older
assembly.groups_of = engine.groups_of = lambda model, layers, layout: groups_of(model, layers, Layout.BY_DECAY)
"""


@pytest.mark.train
def test_a_checkpoint_from_before_the_layers_loads_into_its_own_groups(bench):
    run = bench(run={"steps": 4}, checkpoint={"interval_steps": 2}, schedule={"kind": "constant"})
    first = run.start(CIUIC_TEST_BEFORE=OLDER)
    first.until(lambda page: page.step >= 2)
    first.signal(10)
    assert first.codes() in ([75, 75], [0, 0]), first.text()
    before = run.steps(1)[-1]["step"]
    text = run.train(CIUIC_MAX_STEP=str(min(before, 3))).text()
    assert "knows no rates by layer" in text
    assert sorted(run.merged()) == [1, 2, 3, 4]
