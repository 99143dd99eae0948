"""Slow and wrong, not only dead: told once, over once, answered as the policy says."""

import pytest

from contract import events as ev
from contract.history import History
from contract.states import RunState, VerdictKind
from supervisor.core import actions as do
from supervisor.core.curve import Curve, Row, row_from
from tests.supervisor.core.world import World, small_config, training

LOOK = {"slow_s": 60.0, "sigma": 10.0, "least_scale": 1.0}


def rows(
    curve: Curve, count: int, *, seconds: float = 1.0, start: int = 0, generation: int = 1, **other
) -> int:
    """So many more steps; the step after the last."""
    for step in range(start + 1, start + count + 1):
        jitter = 0.02 * (step * 7 % 5)
        values = {"loss": 2.0 + jitter, "norm": 1.0 + jitter, "tokens": 4096.0, **other}
        curve.add(Row(attempt=1, generation=generation, step=step, seconds=seconds + jitter, **values))
    return start + count


def events_of(world: World, kind: type) -> list:
    return [event.body for event in world.journal if isinstance(event.body, kind)]


def alerts_of(world: World, prefix: str) -> list[ev.AlertQueued]:
    return [body for body in events_of(world, ev.AlertQueued) if body.key.startswith(prefix)]


def running_world(**sections) -> World:
    monitor = {"slow_s": 20.0, **sections.pop("monitor", {})}
    world = World(config=small_config(run={"steps": 100_000}, monitor=monitor, **sections))
    world.until(training)
    for _ in range(140):
        world.move()
        world.tick()
    assert world.look()[1].kind is VerdictKind.HEALTHY
    return world


def pass_time(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.move()
        world.tick()


# --- the curve


def test_pace_needs_a_history_and_then_tells_slow_from_usual() -> None:
    curve = Curve()
    at = rows(curve, 120)
    assert curve.look(**LOOK).pace is None  # 60 s of "lately" leave too little before them
    at = rows(curve, 100, start=at)
    assert curve.look(**LOOK).pace.recent_s == pytest.approx(curve.look(**LOOK).pace.usual_s, rel=0.05)
    rows(curve, 70, start=at, seconds=2.0)
    pace = curve.look(**LOOK).pace
    assert pace.recent_s == pytest.approx(2.04, abs=0.05)
    assert pace.usual_s == pytest.approx(1.04, abs=0.05)
    assert pace.since > at


def test_single_slow_steps_a_start_and_another_batch_are_no_slow_down() -> None:
    curve = Curve()
    at = rows(curve, 220)
    for _ in range(20):  # every eighth step waits for a save or an evaluation
        at = rows(curve, 1, start=at, seconds=30.0)
        at = rows(curve, 7, start=at)
    assert curve.look(**LOOK).pace.recent_s < 1.2
    at = rows(curve, 5, start=at, seconds=40.0, generation=2)  # a restart is slow at first
    at = rows(curve, 70, start=at, generation=2)
    assert curve.look(**LOOK).pace.recent_s < 1.2
    rows(curve, 100, start=at, seconds=2.0, generation=2, tokens=8192.0)
    assert curve.look(**LOOK).pace.usual_s > 2  # steps of twice the tokens have a usual pace of their own


def test_of_a_step_that_two_generations_have_the_later_one_counts() -> None:
    curve = Curve()
    rows(curve, 100)
    rows(curve, 10, start=100, loss=50.0)
    assert curve.look(**LOOK).numbers.spiking == 10
    rows(curve, 10, start=96, generation=2)
    numbers = curve.look(**LOOK).numbers
    assert numbers.spiking == 0
    assert numbers.loss < 3


@pytest.mark.parametrize(
    ("change", "spiking"),
    [({"loss": 9.0}, 6), ({"loss": 2.2}, 0), ({"norm": 9.0}, 6), ({"norm": 4.0}, 0), ({"loss": 1.0}, 0)],
)
def test_a_spike_stands_out_of_the_runs_own_scatter(change: dict[str, float], spiking: int) -> None:
    curve = Curve()
    rows(curve, 6, start=rows(curve, 120), **change)
    assert curve.look(**LOOK).numbers.spiking == spiking


def test_a_row_of_another_program_may_lack_everything_but_the_step() -> None:
    curve = Curve()
    for step in range(1, 200):
        curve.add(row_from({"step": step}, (1, 1)))
    look = curve.look(**LOOK)
    assert (look.step, look.pace, look.numbers.spiking) == (199, None, 0)
    assert look.numbers.not_finite == 0
    curve.add(row_from({"step": 200, "loss": None}, (1, 1)))
    assert curve.look(**LOOK).numbers.not_finite == 1


# --- slow


def test_slow_is_told_once_with_the_rank_and_its_end_too() -> None:
    world = running_world()
    world.pace = 2.0
    world.spent = {
        0: {"data": 0.1, "forward": 0.3, "backward": 1.5, "optimizer": 0.1, "wait": 0.0},
        1: {"data": 0.1, "forward": 0.9, "backward": 0.9, "optimizer": 0.1, "wait": 0.0},
    }
    pass_time(world, 60)
    told = alerts_of(world, "notice:slow")
    assert len(told) == 1
    assert "rank 1" in told[0].text["en"]
    assert "前向" in told[0].text["zh"]
    noticed = events_of(world, ev.Noticed)
    assert [(body.verdict, body.suspects, body.nodes) for body in noticed] == [("slow", (1,), ("n1",))]
    assert world.history.state is RunState.RUNNING
    assert not events_of(world, ev.GenerationIntended)
    world.pace = 1.0
    pass_time(world, 60)
    assert len(alerts_of(world, "notice-over:slow")) == 1
    world.pace = 2.0
    pass_time(world, 60)
    assert len(alerts_of(world, "notice:slow")) == 2


def test_a_crash_in_between_does_not_tell_it_again() -> None:
    world = running_world()
    world.pace = 2.0
    pass_time(world, 60)
    world.kill_rank(0)
    pass_time(world, 60)
    assert world.history.faults
    assert len(alerts_of(world, "notice:slow")) == 1
    assert not alerts_of(world, "notice-over:slow")


def test_all_ranks_alike_blame_nobody() -> None:
    world = running_world()
    world.pace = 2.0
    world.spent = {rank: {"data": 0.1, "forward": 0.9, "backward": 0.9, "wait": 0.1} for rank in (0, 1)}
    pass_time(world, 60)
    assert events_of(world, ev.Noticed)[0].suspects == ()
    assert "no rank stands out" in alerts_of(world, "notice:slow")[0].text["en"]


def test_a_slow_node_gives_way_to_a_spare_only_when_asked_to() -> None:
    slow = {0: {"data": 0.1, "forward": 0.3}, 1: {"data": 0.1, "forward": 1.9}}
    for rule, replaced in (("tell", False), ("replace", True)):
        monitor = {"on_slow": rule, "slow_replace_s": 30.0}
        world = running_world(monitor=monitor, job={"spare_nodes": 1})
        world.pace, world.spent = 2.0, slow
        pass_time(world, 100)
        members = [body.members for body in events_of(world, ev.GenerationIntended)]
        assert members == ([("n0", "n2")] if replaced else [])
        assert [body.verdict for body in events_of(world, ev.Judged) if type(body) is ev.Judged] == (
            ["too-slow"] if replaced else []
        )


def test_ignored_is_ignored() -> None:
    world = running_world(monitor={"on_slow": "ignore", "on_loss_spike": "ignore"})
    world.pace, world.poison = 2.0, range(100_000)
    pass_time(world, 100)
    assert not events_of(world, ev.Noticed)


# --- wrong


def test_a_loss_spike_is_told_and_training_goes_on() -> None:
    world = running_world()
    at = max(world.positions)
    world.poison = range(world.positions[at], world.positions[at] + 4)
    pass_time(world, 30)
    assert [(body.verdict, body.cause) for body in events_of(world, ev.Noticed)] == [
        ("diverging", "loss-spike")
    ]
    assert len(alerts_of(world, "notice:loss-spike")) == 1
    assert not events_of(world, ev.BoundsSet)


def test_a_loss_spike_is_rolled_back_and_its_data_jumped_for_good() -> None:
    world = running_world(monitor={"on_loss_spike": "rollback"})
    at = max(world.positions)
    bad = world.positions[at]
    world.poison = range(bad, bad + 4)
    pass_time(world, 40)
    judged = [body for body in events_of(world, ev.Judged) if type(body) is ev.Judged]
    assert [(body.verdict, body.cause, body.step) for body in judged] == [("diverged", "loss-spike", at)]
    bounds = events_of(world, ev.BoundsSet)
    assert len(bounds) == 1
    assert bounds[0].max_step <= at
    start, end = bounds[0].skip_windows[0]
    assert start <= bad < end
    resumed = events_of(world, ev.GenerationResumed)[-1].step
    assert resumed <= at
    assert world.look()[1].kind is VerdictKind.HEALTHY
    world.kill_rank(0)  # a later resume jumps it too
    pass_time(world, 40)
    assert not any(world.spoiled[step] for step in range(resumed, max(world.positions)))


def test_data_that_spikes_wherever_it_is_taken_stops_the_run() -> None:
    world = running_world(monitor={"on_loss_spike": "rollback"}, numerics={"roll_back_limit": 3})
    world.poison = range(world.positions[max(world.positions)], 10_000_000)
    pass_time(world, 300)
    assert world.history.state is RunState.FAILED
    assert len(events_of(world, ev.BoundsSet)) == 2
    assert "loss-spike" in world.history.reason


def test_stop_stops() -> None:
    world = running_world(monitor={"on_loss_spike": "stop"})
    world.poison = range(world.positions[max(world.positions)], 10_000_000)
    pass_time(world, 40)
    assert world.history.state is RunState.FAILED
    assert "policy" in world.history.reason
    assert not [action for action in world.tick() if isinstance(action, do.Prepare)]


def test_a_journal_without_notices_folds_as_before() -> None:
    assert History().notices == {}
