"""A journal judged again gives the verdicts that it holds, whatever has happened to the run (design rule 2)."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract import events as ev
from contract.states import JobState
from supervisor.replay import replay
from tests.supervisor.core.world import World, small_config, training

FAULTS = {
    "kill": lambda world: world.kill_rank(1),
    "raise": lambda world: world.raise_in_rank(0, "odd"),
    "hang": lambda world: world.hang_rank(1),
    "lose": lambda world: world.lose_node(1),
    "lose-many": lambda world: [world.lose_node(0) for _ in range(30)],
    "preempt": lambda world: world.end_job(JobState.ENDED_PREEMPTED),
    "limit": lambda world: setattr(world, "usr1", True),
    "silence": lambda world: setattr(world, "queue_silent", not world.queue_silent),
    "slow": lambda world: setattr(world, "pace", 3.0 if world.pace == 1.0 else 1.0),
    "poison": lambda world: setattr(world, "poison", poisoned(world)),
}


def poisoned(world: World) -> range:
    at = world.positions[max(world.positions)] if world.positions else 0
    return range(at, at + 4)


def differences(world: World) -> list[str]:
    return [
        f"{item.recorded.verdict}: {item.recorded.reason} → {item.again.kind}: {item.again.reason}"
        for item in replay(world.journal, world.config)
        if not item.same
    ]


def live(world: World, faults: list[str], seconds: int) -> None:
    for name in faults:
        FAULTS[name](world)
        for _ in range(seconds):
            world.move()
            world.live_tick()


def start(nodes: int, **monitor) -> World:
    config = small_config(
        run={"steps": 100_000},
        job={"nodes": nodes, "spare_nodes": 1},
        monitor={"slow_s": 20.0, **monitor},
    )
    world = World(config=config)
    world.until(training)
    world.spent = {rank: {"data": 0.1, "forward": 2.0 if rank == 1 else 0.3} for rank in range(nodes)}
    for _ in range(130):
        world.move()
        world.tick()
    return world


@given(
    faults=st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=6),
    rule=st.sampled_from(["tell", "rollback"]),
)
@settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_any_life_is_judged_again_alike(faults: list[str], rule: str) -> None:
    world = start(2, on_loss_spike=rule, on_slow="replace", slow_replace_s=20.0)
    live(world, faults, 50)
    assert not differences(world)


@pytest.mark.parametrize("fault", ["kill", "raise", "hang", "lose", "lose-many", "preempt", "limit"])
def test_a_run_larger_than_what_the_journal_keeps(fault: str) -> None:
    """80 ranks: an observation keeps 24 nodes and 64 ends."""
    world = World(config=small_config(run={"steps": 100_000}, job={"nodes": 80, "spare_nodes": 1}))
    world.until(training)
    live(world, [fault], 20)
    assert any(isinstance(event.body, ev.Judged) for event in world.journal)
    assert not differences(world)


def test_a_changed_verdict_is_seen() -> None:
    world = World()
    world.until(training)
    live(world, ["kill"], 10)
    changed = [
        dataclasses.replace(event, body=dataclasses.replace(event.body, cause="hang"))
        if isinstance(event.body, ev.Judged)
        else event
        for event in world.journal
    ]
    assert not all(item.same for item in replay(changed, world.config))
