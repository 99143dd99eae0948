"""What the supervisor does about numbers that are not finite, by policy."""

import pytest

from contract import events as ev
from contract.states import ControlPhase, RunState
from supervisor.core import actions as do
from supervisor.core.observation import CheckpointLook
from supervisor.core.rollback import joined, window_of
from tests.supervisor.core.make import control, failure, history, seen
from tests.supervisor.core.test_decide import CONFIG, act, names, only
from tests.supervisor.core.world import small_config

TEXT = "rank 1 on n1 found numbers that are not finite: NumericsError: the loss is not finite on rank 1 at step 8"
WINDOW = f"{TEXT}, sampler positions [56, 64)"
CHECKPOINT = CheckpointLook(step=5, attempt=1, generation=1, path="x")


def nan(**changes) -> ev.Judged:
    return failure(**{"cause": "nan", "reason": WINDOW, "signature": "nan|x", "lines": (), **changes})


def answered(*bodies: ev.Body, config=CONFIG, checkpoint=CHECKPOINT, generation: int = 1):
    members = control(generation=generation, phase=ControlPhase.GO, members=("n0", "n1"))
    observation = seen(control=members, generation=generation, checkpoint=checkpoint)
    return act(history(*bodies), observation, config)


def test_the_newest_checkpoint_before_it_and_its_data_jumped() -> None:
    actions = answered(nan())
    assert names(actions) == ["Tell", "SetState", "SetBounds", "Prepare"]
    bounds = only(actions, do.SetBounds)
    assert (bounds.max_step, bounds.skip_windows) == (5, ((56, 64),))
    text = only(actions, do.Tell).alert.text
    assert "样本 [56, 64)）将被跳过" in text["zh"]
    assert "samples [56, 64), is jumped" in text["en"]


def test_killed_between_bounds_and_restart_the_bounds_are_not_set_again() -> None:
    told = ev.BoundsSet(min_step=1, max_step=5, skip_windows=((56, 64),), reason="nan")
    actions = answered(nan(), told)
    assert "SetBounds" not in names(actions)
    assert "Prepare" in names(actions)


def test_without_a_checkpoint_it_starts_again_from_the_beginning() -> None:
    assert only(answered(nan(), checkpoint=None), do.SetBounds).max_step == -1


def test_a_later_window_is_added() -> None:
    told = ev.BoundsSet(min_step=1, max_step=5, skip_windows=((8, 16),), reason="nan")
    assert only(answered(told, nan()), do.SetBounds).skip_windows == ((8, 16), (56, 64))


def again(times: int) -> list[ev.Body]:
    """The same step fails again and again, each time with the next data."""
    bodies: list[ev.Body] = []
    for number in range(1, times + 1):
        if number > 1:
            bodies.append(
                ev.GenerationIntended(attempt=1, generation=number, members=("n0", "n1"), reason="x")
            )
            bodies.append(ev.GenerationResumed(attempt=1, generation=number, step=5))
        start = 48 + 8 * number
        bodies.append(nan(generation=number, reason=f"{TEXT}, sampler positions [{start}, {start + 8})"))
        if number < times:
            window = ((56, start + 8),)
            bodies.append(ev.BoundsSet(min_step=1, max_step=5, skip_windows=window, reason="nan"))
    return bodies


def test_other_data_at_the_same_step_is_tried_before_the_model_is_blamed() -> None:
    config = small_config(numerics={"roll_back_limit": 3}, supervisor={"in_place_limit": 9, "backoff_s": 0.0})
    second = answered(*again(2), config=config, generation=2)
    assert only(second, do.SetBounds).skip_windows == ((56, 72),)
    third = answered(*again(3), config=config, generation=3)
    assert only(third, do.SetState).state is RunState.FAILED


@pytest.mark.parametrize("policy", ["stop", "skip", "lower-scale"])
def test_the_other_policies_end_the_run(policy: str) -> None:
    config = small_config(
        numerics={"on_nan": policy}, precision={"dtype": "fp16" if policy == "lower-scale" else "bf16"}
    )
    actions = answered(nan(), config=config)
    assert only(actions, do.SetState).state is RunState.FAILED
    assert policy in only(actions, do.SetState).reason
    assert "SetBounds" not in names(actions)


def test_a_program_that_tells_no_positions_is_restarted_as_ever() -> None:
    actions = answered(nan(reason=TEXT))
    assert names(actions) == ["Tell", "SetState", "Prepare"]


def test_positions_are_found_in_reason_and_last_lines() -> None:
    assert window_of(nan()) == (56, 64)
    assert window_of(nan(reason="exit code 65", lines=("x", WINDOW, "y"))) == (56, 64)
    assert window_of(nan(reason="sampler positions [8, 8)")) is None
    assert joined(((8, 16), (0, 4), (16, 20), (2, 6))) == ((0, 6), (8, 20))
