"""Where a share of the experts lies in the whole model, and back. And DeepSeek-V2, whose router is another."""

import math

import pytest

from trainer.reshape.apart import is_apart, to_stack, to_whole, whole_name, whole_shape

SHARES, EXPERTS, ROWS, COLUMNS = 3, 2, 4, 5


def test_every_element_of_every_share_has_one_place_in_the_whole_and_back():
    shapes = {
        "model.layers.1.mlp.experts.w1": (EXPERTS, ROWS, COLUMNS),
        "model.layers.1.mlp.experts.w2": (EXPERTS, COLUMNS, ROWS),
        "model.layers.1.mlp.experts.w3": (EXPERTS, ROWS, COLUMNS),
        "model.layers.1.mlp.router.gate.weight": (6, 7),
    }
    whole = {whole_name(name): whole_shape(name, shape, SHARES) for name, shape in shapes.items()}
    assert whole == {
        "model.layers.1.mlp.experts.gate_up_proj": (6, 8, 5),
        "model.layers.1.mlp.experts.down_proj": (6, 5, 4),
        "model.layers.1.mlp.gate.weight": (6, 7),
    }
    seen = set()
    for name, shape in shapes.items():
        size = math.prod(shape)
        for share in range(SHARES if is_apart(name) else 1):
            at = 0
            # In stretches that end anywhere, as ZeRO cuts.
            for count in (7, size - 10, 3):
                for run in to_whole(name, shape, share, at, count):
                    for step in range(run.count):
                        back = to_stack(run.name, whole[run.name], run.at + step)
                        assert (back.name, back.at) == (name, share * size + at + step)
                        assert (run.name, run.at + step) not in seen
                        seen.add((run.name, run.at + step))
                    at += run.count
    assert len(seen) == sum(map(math.prod, whole.values()))


@pytest.mark.train
def test_the_v2_router_its_balance_loss_and_layers_computed_twice(bench):
    """Each expert's tokens come from all ranks, and the same gradient comes of it. On the host too."""
    found = []
    for apart in (1, 2):
        run = bench(
            f"apart-{apart}",
            run={"steps": 4},
            precision={"dtype": "fp32"},
            data={"evaluate_interval_steps": 2},
            model={"family": "deepseek_v2", "balance_loss_weight": 0.1},
            memory={"recompute": "all" if apart > 1 else "none"},
            deepspeed={"expert_parallel": apart, "offload_optimizer": apart > 1},
        )
        run.train()
        keys = ("loss", "grad_norm", "balance_loss", "router_violation", "val_loss")
        found.append([[row.get(key) for key in keys] for row in run.steps(1)])
    for plain, divided in zip(*found, strict=True):
        assert plain[3] == divided[3]
        assert [*divided[:3], divided[4] or 0] == pytest.approx([*plain[:3], plain[4] or 0], rel=1e-6)
