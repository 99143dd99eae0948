"""Speed and memory: the loss in portions, recomputed layers, and a gate on what a step asks the device and the others.

Counts never flake: a new `.item()` or collective in the loop fails here, whatever the machine does.
"""

import json

import pytest
import torch
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

from contract.config.memory import Memory
from contract.config.model import Model
from trainer.attention import kernel_for
from trainer.head import ChunkedHead
from trainer.levers import thrifty
from trainer.model import architecture, build_model
from trainer.routers import Routers
from trainer.step import summed_loss

SMALL = Model(
    hidden_size=32,
    intermediate_size=64,
    moe_intermediate_size=16,
    q_lora_rank=16,
    kv_lora_rank=16,
    routed_experts=4,
)
VOCABULARY, TOKENS, PORTION = 1000, 4 * 48, 64


class Largest(TorchDispatchMode):
    """The largest tensor with a vocabulary's width that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dim() and tensor.shape[-1] == VOCABULARY:
                self.elements = max(self.elements, tensor.numel())
        return result


class Bare:
    """What `summed_loss` needs of an engine."""

    def __init__(self, module) -> None:
        self.module = module

    def __call__(self, **named):
        return self.module(**named)


def network(**memory):
    model = build_model(architecture(SMALL, vocab_size=VOCABULARY, sequence_length=48), seed=3)
    return thrifty(model, Memory(**memory))


def backward(model):
    """(loss, gradients, elements of the largest logits) of one pass; routers are counted as in training."""
    torch.manual_seed(0)
    batch = torch.randint(0, VOCABULARY, (4, 49))
    routers = Routers(model, SMALL, torch.device("cpu"))
    with Largest() as largest:
        with routers.watching():
            loss = summed_loss(Bare(model), batch)
        loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), gradients, largest.elements, routers._counts.sum(dim=1).tolist()


@pytest.fixture(scope="module")
def plain():
    return backward(network())


@pytest.mark.parametrize(
    "memory", [{"loss_chunk_tokens": PORTION}, {"recompute": "half"}, {"recompute": "all"}]
)
def test_time_traded_for_memory_changes_no_number(plain, memory):
    loss, gradients, elements, counts = backward(network(**memory))
    assert loss == pytest.approx(plain[0], rel=1e-6)
    assert set(gradients) == set(plain[1])
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain[1][name], rtol=1e-4, atol=1e-5, msg=name)
    assert counts == plain[3] == [TOKENS * 2] * 2  # a layer that is computed twice is counted once
    assert plain[2] == TOKENS * VOCABULARY
    assert elements == (PORTION * VOCABULARY if "loss_chunk_tokens" in memory else plain[2])


def test_the_head_keeps_its_parameter_and_gives_logits_without_targets():
    model = network()
    before = model.lm_head.weight
    thrifty(model, Memory(loss_chunk_tokens=PORTION))
    assert isinstance(model.lm_head, ChunkedHead)
    assert model.lm_head.weight is before
    assert dict(model.named_parameters())["lm_head.weight"] is before
    assert model(input_ids=torch.zeros(1, 5, dtype=torch.int64), use_cache=False).logits.shape == (
        1,
        5,
        VOCABULARY,
    )


@pytest.mark.parametrize(("value", "kernel"), [(32, SDPBackend.FLASH_ATTENTION), (24, SDPBackend.MATH)])
def test_the_attention_kernel_is_found_out(value, kernel):
    """Torch's flash kernel refuses heads whose queries and values differ in size, as DeepSeek's do."""
    shape = architecture(
        SMALL.model_copy(update={"v_head_dim": value}), vocab_size=VOCABULARY, sequence_length=48
    )
    for dtype in (torch.float32, torch.bfloat16):
        assert kernel_for(shape, torch.device("cpu"), dtype) == kernel


@pytest.mark.train
@pytest.mark.parametrize("stage", [2, 3])
def test_both_train_under_zero_like_the_plain_run(bench, stage):
    found = []
    for name, memory in (("plain", {}), ("thrifty", {"recompute": "all", "loss_chunk_tokens": 24})):
        run = bench(
            name,
            run={"steps": 5},
            precision={"dtype": "fp32"},
            deepspeed={"zero_stage": stage},
            model={"balance_loss_weight": 0.01},
            memory=memory,
        )
        told = run.train().text()
        assert "levers: experts grouped_mm, attention sdpa (flash)" in told
        assert "throughput timer of DeepSpeed off" in told
        found.append([row[key] for row in run.steps(1) for key in ("loss", "grad_norm", "balance_loss")])
    assert found[0] == pytest.approx(found[1], rel=2e-5)


@pytest.mark.train
@pytest.mark.parametrize("stage", [2, 3])
def test_what_the_host_keeps_trains_alike(bench, stage):
    """With a save and a resume between. What it frees shows on a GPU alone: benchmarks/gpu/numerics.py."""
    found = []
    for host in (False, True):
        keys = {"zero_stage": stage, "offload_optimizer": host, "offload_param": host and stage == 3}
        run = bench(f"host-{host}", run={"steps": 4}, deepspeed=keys, checkpoint={"interval_steps": 2})
        run.train(CIUIC_TEST_BEFORE=LEAVE_AFTER_TWO)
        run.train()
        found.append([row[key] for row in run.merged().values() for key in ("loss", "grad_norm")])
    # The host sums in another order, and in bfloat16 the last bit of a weight may follow.
    assert found[0] == pytest.approx(found[1], rel=5e-5)


LEAVE_AFTER_TWO = """
import trainer.preload
from trainer.loop import Training
Training.finished = lambda self, progress: progress.step >= 2
"""
COUNTS = """
import json, os, threading, torch, trainer.preload, trainer.loop as loop
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
counts = {"reads": 0, "collectives": 0}
class Reads(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if "_local_scalar_dense" in str(function):
            counts["reads"] += 1
        return function(*arguments, **(named or {}))
def counted(name):
    plain = getattr(dist, name)
    def call(*arguments, **named):
        counts["collectives"] += threading.current_thread() is threading.main_thread()  # a save goes on beside
        return plain(*arguments, **named)
    setattr(dist, name, call)
for name in ("all_reduce", "all_gather_into_tensor", "all_gather_object", "broadcast_object_list", "reduce_scatter_tensor", "reduce", "barrier"):
    counted(name)
step = loop.Training.step
def watched(self, *arguments):
    before = dict(counts)
    with Reads():
        result = step(self, *arguments)
    told.append({key: counts[key] - before[key] for key in counts})
    return result
loop.Training.step = watched
train = loop.Training.train
told = []
def recorded(self, progress):
    code = train(self, progress)
    if self.ranks.rank == 0:
        open(os.environ["CIUIC_RUN_DIR"] + "/counts.json", "w").write(json.dumps(told))
    return code
loop.Training.train = recorded
"""


@pytest.mark.train
def test_host_reads_and_collectives_of_a_step_do_not_grow_with_its_micro_batches(bench):
    """Those of DeepSpeed's own step included. ZeRO 1 reduces in the step; a read is a wait on a GPU."""
    found = {}
    for micro in (1, 4):
        run = bench(
            f"micro-{micro}",
            run={"steps": 4},
            deepspeed={"zero_stage": 1},
            batch={"micro_batch_size": micro},
            data={"evaluate_interval_steps": 0},
        )
        generation = run.start(CIUIC_TEST_BEFORE=COUNTS)
        assert generation.codes() == [0, 0], generation.text()
        found[micro] = json.loads((run.run.path / "counts.json").read_text())[1:]
    assert found[1] == found[4]
    assert max(step["reads"] for step in found[1]) <= 4, found
    assert max(step["collectives"] for step in found[1]) <= 12, found


@pytest.mark.slow  # torch compiles for minutes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("stage", "recompute"), [(1, "half"), (3, "none")])
def test_compiled_layers_train_alike(bench, tmp_path, stage, recompute):
    keys = {"deepspeed": {"zero_stage": stage}, "precision": {"dtype": "fp32"}, "run": {"steps": 3}}
    plain = bench("plain", **keys)
    plain.train()
    run = bench("compiled", model={"compile_layers": True}, memory={"recompute": recompute}, **keys)
    generation = run.train(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "compiled"))
    assert "layers compiled" in generation.text()
    assert any((tmp_path / "compiled").iterdir()), "nothing was compiled"
    assert run.losses() == pytest.approx(plain.losses(), rel=1e-5)
