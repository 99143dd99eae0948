"""Number formats: refused where the device lacks them, and FP8 in software against bf16."""

import pytest
import torch

from contract.config.precision import Precision
from tests.contract.test_deepspeed import FP8_ZERO3
from trainer.errors import ConfigError
from trainer.precision import check_precision, fits_fp8, in_precision


@pytest.mark.parametrize(("dtype", "instead"), [("fp16", "use bf16"), ("fp8", "compute capability 8.9")])
def test_a_format_that_this_device_lacks_is_refused_with_the_alternative(bench, dtype, instead):
    generation = bench(precision={"dtype": dtype}).start()
    assert generation.codes() == [78, 78], generation.text()
    assert instead in generation.pages[0].read().exception["text"]


@pytest.mark.parametrize(
    ("capability", "fine"), [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True)]
)
def test_the_capability_decides(monkeypatch, capability, fine):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a device")
    if fine:
        check_precision(Precision(dtype="fp8"))
    else:
        with pytest.raises(ConfigError, match=rf"capability {capability[0]}\.{capability[1]}; use bf16"):
            check_precision(Precision(dtype="fp8"))
    check_precision(Precision(dtype="fp8", fp8_emulate=True))


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("model.layers.0.self_attn.o_proj", True),
        ("model.layers.1.mlp.shared_experts.gate_proj", True),
        ("lm_head", False),
        ("model.layers.1.mlp.gate", False),
        ("model.layers.0.input_layernorm", False),
    ],
)
def test_what_stays_in_high_precision(name, taken):
    assert fits_fp8(torch.nn.Linear(32, 64), name) == taken
    assert not fits_fp8(torch.nn.Linear(32, 40), name)


def test_conversion_keeps_the_parameters_and_quantises_gradients_to_e5m2():
    layer = torch.nn.Sequential(torch.nn.Linear(32, 32, bias=False))
    before = layer[0].weight
    converted = in_precision(layer, Precision(dtype="fp8", fp8_emulate=True))
    assert converted[0].weight is before
    assert converted[0].config.cast_config_grad_output.target_dtype == torch.float8_e5m2
    assert converted[0].config.cast_config_input.target_dtype == torch.float8_e4m3fn
    plain = torch.nn.Linear(32, 32, bias=False)
    plain.weight = before
    given = torch.randn(64, 32)
    distance = (converted(given) - plain(given)).norm() / plain(given).norm()
    assert 0 < distance < 0.1


@pytest.mark.train
def test_fp8_in_software_under_zero_3_trains_like_bf16(bench):
    """The published JSON to the letter, but for the device that this machine does not have."""
    losses = {}
    for dtype in ("bf16", "fp8"):
        inline = (
            FP8_ZERO3 if dtype == "fp8" else {key: FP8_ZERO3[key] for key in ("bf16", "zero_optimization")}
        )
        run = bench(
            dtype,
            run={"steps": 20},
            model={"hidden_size": 64},
            deepspeed={"inline": inline},
            **({"precision": {"dtype": "fp8", "fp8_emulate": True}} if dtype == "fp8" else {}),
        )
        run.train()
        losses[dtype] = run.losses()
    assert losses["fp8"] != losses["bf16"]
    assert losses["fp8"][-1] < losses["fp8"][0] - 1
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.03)
