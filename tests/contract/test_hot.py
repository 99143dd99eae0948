"""What may change while a run trains, and why the rest may not."""

import pytest

from contract.config import RunConfig
from contract.hot import checked


def config(**batch) -> RunConfig:
    return RunConfig.model_validate(
        {"run": {"name": "t", "steps": 20}, "data": {"path": "x"}, "batch": batch}
    )


def test_safe_settings_are_taken_with_their_values() -> None:
    words = ["lr_factor=0.5", "optimizer.gradient_clipping = 2", "log_level=debug", "checkpoint=now"]
    assert checked(words, config()) == (
        {"lr_factor": 0.5, "optimizer.gradient_clipping": 2.0, "log_level": "debug"},
        ("checkpoint",),
    )
    adaptive = config(adaptive="grow")
    assert checked(["batch.max_accumulation_steps=8"], adaptive) == (
        {"batch.max_accumulation_steps": 8},
        (),
    )


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("data.path=/x", "ciuic resume RUN --set data.path=VALUE"),
        ("batch.global_batch_size=8", "ciuic resume RUN --set batch.global_batch_size=VALUE"),
        ("foo=1", r"foo: unknown key \(possible are log_level"),
        ("lr_facto=1", 'lr_facto: unknown key; did you mean "lr_factor"'),
        ("gradient_clipping=1", 'did you mean "optimizer.gradient_clipping"'),
        ("batch.global_bach_size=1", 'unknown key; did you mean "batch.global_batch_size"'),
        ("lr_factor=99", "from 0 to 10"),
        ("lr_factor=nan", "from 0 to 10"),
        ("lr_factor=fast", "not a number"),
        ("optimizer.gradient_clipping=-1", "from 0"),
        ("log_level=loud", "one of debug"),
        ("log_level=debug:7", "numbers from 0 to 0"),
        ("log_level=usual:0", "one of debug"),
        ("checkpoint=later", "only checkpoint=now"),
        ("lr_factor", "key=value"),
        ("batch.max_accumulation_steps=8", "nobody changes the batch"),
    ],
)
def test_others_are_refused_with_the_reason(word, why) -> None:
    with pytest.raises(ValueError, match=why):
        checked([word], config())


def test_a_bound_below_what_the_run_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        checked(["batch.max_micro_batch_size=2"], config(adaptive="grow", micro_batch_size=4))
