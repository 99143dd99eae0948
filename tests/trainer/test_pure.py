"""Small decisions of a worker: who it is, what DeepSpeed is told, which checkpoint it takes."""

import pytest

from contract import config as configuration
from contract.page import NullPage
from trainer.errors import ConfigError
from trainer.orders import Orders
from trainer.worker import worker_from_environment

AGENT = {
    "CIUIC_RUN_DIR": "/runs/x",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "CIUIC_ATTEMPT": "3",
    "CIUIC_GENERATION": "4",
}


def test_the_agents_variables():
    worker = worker_from_environment({**AGENT, "CIUIC_SKIP_WINDOWS": "[[3, 5]]", "CIUIC_MAX_STEP": "9"})
    assert (worker.rank, worker.world_size, worker.attempt, worker.generation) == (1, 2, 3, 4)
    assert (worker.bounds.min_step, worker.bounds.max_step) == (0, 9)
    assert worker.skip_windows == ((3, 5),)
    assert worker.supervised
    assert not worker.leads


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "x"}, "RANK='x'"),
        ({"RANK": "2"}, "RANK=2"),
        ({"CIUIC_SKIP_WINDOWS": "[[1]]"}, "CIUIC_SKIP_WINDOWS"),
        ({"CIUIC_SKIP_WINDOWS": "{"}, "CIUIC_SKIP_WINDOWS"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(variables, named):
    with pytest.raises(ConfigError) as error:
        worker_from_environment({**AGENT, **variables})
    assert named in str(error.value)


def test_an_order_is_carried_out_once():
    page = NullPage()
    orders = Orders(page)
    assert not orders.checkpoint_wanted()
    page.give_orders({"orders": [{"id": "a", "kind": "checkpoint"}, {"id": "b", "kind": "dump"}]})
    assert orders.checkpoint_wanted()
    assert not orders.checkpoint_wanted()
    page.give_orders({"orders": [{"id": "a", "kind": "checkpoint"}]})
    assert not orders.checkpoint_wanted()
    page.give_orders({"orders": [{"id": "c", "kind": "checkpoint"}]})
    assert orders.checkpoint_wanted()


def recipe(**sections):
    return configuration.RunConfig.model_validate({"run": {"steps": 1}, **sections})


def test_the_users_keys_lie_over_ours():
    from trainer.engine import deepspeed_config

    inline = {"zero_optimization": {"stage": 1, "overlap_comm": True}, "communication_data_type": "fp32"}
    found = deepspeed_config(recipe(deepspeed={"inline": inline}), ranks=2)
    assert found["zero_optimization"]["stage"] == 1
    assert found["zero_optimization"]["overlap_comm"] is True
    assert found["zero_optimization"]["reduce_scatter"] is True
    assert found["communication_data_type"] == "fp32"
    assert found["gradient_clipping"] == 1.0
    assert found["bf16"] == {"enabled": True, "check_grad_overflow": True}


@pytest.mark.parametrize(
    ("deepspeed", "told"),
    [
        (
            {"inline": {"train_batch_size": 99}},
            "train_batch_size is 99, but batch.global_batch_size makes it 16",
        ),
        ({"zero_stage": 0}, "zero_stage: 0 with bf16"),
        ({"config": "/nowhere.json"}, "config: /nowhere.json"),
    ],
)
def test_what_cannot_be_trained_is_refused(deepspeed, told):
    from trainer.engine import deepspeed_config

    with pytest.raises(ConfigError) as error:
        deepspeed_config(recipe(deepspeed=deepspeed), ranks=2)
    assert told in str(error.value)
    with pytest.raises(ConfigError, match="is not a multiple of"):
        deepspeed_config(recipe(), ranks=3)
