"""A lost node and a spare that stands by: the job goes on, whoever tells of the loss first, however late the others are."""

from dataclasses import replace
from itertools import product

import pytest

from contract.states import AgentPhase, JobState, RunState
from supervisor.core import actions as do
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, NodeSeen
from tests.supervisor.core.make import NOW, bare, failure, history, node, seen
from tests.supervisor.core.world import World, small_config, training

ONE_SPARE = small_config(job={"spare_nodes": 1})
SILENT_S = ONE_SPARE.monitor.node_silent_s


def attempts(world: World) -> int:
    return max(world.jobs)


@pytest.mark.parametrize("takes_out_after", [None, 0, 2, 5, 30])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_spare_takes_over_whoever_tells_of_the_loss(lost: int, takes_out_after: int | None) -> None:
    """Slurm at once, or before the beats' silence, or after it, or never; the other two late when it counts."""
    others = sorted({0, 1, 2} - {lost})
    for from_s, who in product(range(-5, 7), (others[:1], others[1:], others)):
        world = World(config=ONE_SPARE, takes_out_after=takes_out_after)
        world.until(training)
        for second in range(-5, 7):
            if second == 0:
                world.lose_node(lost)
            if second == from_s:
                for number in who:
                    world.hold_up(number, SILENT_S - 1)
            world.move()
            world.live_tick()
        case = f"late from second {from_s}: {who}"
        assert world.run() is RunState.COMPLETED, case
        assert attempts(world) == 1, f"{case}: the allocation was given away; {world.kinds()}"


def test_a_spare_that_is_lost_too_is_not_waited_for_long() -> None:
    for apart_s in range(8):
        world = World(config=ONE_SPARE, takes_out_after=3)
        world.until(training)
        for number in (1, 1):  # the second of those that are left is the spare
            world.lose_node(number)
            for _ in range(apart_s):
                world.move()
                world.live_tick()
        began = world.now
        world.until(lambda world: attempts(world) == 2)
        assert world.now - began <= 2 * SILENT_S + 5


LOST = failure(verdict="node-lost", cause="node-failure", signature="", nodes=("n1",), suspects=(1,))
GONE = node(1, silent_s=30.0)
RUNNING = JobLook(state=JobState.RUNNING, job_id="77", nodes=("n0", "n2"))
IN_PLACE, WAITS, NEW_ATTEMPT = "prepare", "wait", "cancel"


def answer(*others: NodeSeen, job: JobLook = RUNNING, after_s: float = 1.0, **changes) -> str:
    past = history(LOST)
    at = past.newest.newest.failed_at + after_s
    look = seen(node(0), GONE, *others, job=job, **changes)
    actions = decide(past, look, judge(look, past, ONE_SPARE, at), ONE_SPARE, at)
    orders = [item for item in actions if isinstance(item, do.Prepare | do.Cancel)]
    if not orders:
        assert isinstance(actions[-1], do.Wait)
        return WAITS
    return IN_PLACE if isinstance(orders[0], do.Prepare) else NEW_ATTEMPT


@pytest.mark.parametrize(
    ("spare", "changes", "expected"),
    [
        (bare(2), {}, IN_PLACE),
        (bare(2), {"job": replace(RUNNING, nodes=())}, IN_PLACE),
        (bare(2), {"job": JobLook(state=JobState.UNKNOWN)}, IN_PLACE),
        (bare(2, phase=AgentPhase.STARTING), {}, IN_PLACE),
        (bare(2, silent_s=4.0), {}, WAITS),
        (bare(2, silent_s=4.0), {"job": replace(RUNNING, nodes=())}, WAITS),
        (bare(2, silent_s=4.0), {"lag_s": 5.0}, IN_PLACE),
        (bare(2, silent_s=SILENT_S + 3.0), {"lag_s": 5.0}, WAITS),
        (bare(2, silent_s=4.0), {"after_s": SILENT_S + 1.0}, NEW_ATTEMPT),
        (bare(2, silent_s=SILENT_S + 0.1), {}, NEW_ATTEMPT),
        (bare(2, silent_s=4.0), {"job": replace(RUNNING, nodes=("n0",))}, NEW_ATTEMPT),
        (bare(2, silent_s=4.0, alive=False), {}, NEW_ATTEMPT),
        (bare(2, silent_s=4.0, done_code=1), {}, NEW_ATTEMPT),
        (bare(2, silent_s=4.0, phase=AgentPhase.LEAVING), {}, NEW_ATTEMPT),
        (bare(2, silent_s=4.0, attempt=0), {}, NEW_ATTEMPT),
        (NodeSeen(node="n2", beat=None, silent_s=1.0), {}, WAITS),
        (None, {}, WAITS),
        (None, {"running_s": 5.0, "after_s": SILENT_S + 1.0}, NEW_ATTEMPT),
        (None, {"running_s": ONE_SPARE.monitor.start_s + 1.0}, NEW_ATTEMPT),
        (None, {"job": replace(RUNNING, nodes=("n0",))}, NEW_ATTEMPT),
        (None, {"job": replace(RUNNING, nodes=())}, NEW_ATTEMPT),
    ],
)
def test_what_the_spare_looks_like_decides(spare: NodeSeen | None, changes: dict, expected: str) -> None:
    others = () if spare is None else (spare,)
    young = {"running_s": 5.0} if spare is None or spare.beat is None else {}
    assert answer(*others, **(young | changes)) == expected


def test_a_survivor_that_is_late_is_waited_for_too() -> None:
    past = history(LOST)
    at = past.newest.newest.failed_at + 1.0
    look = seen(node(0, silent_s=4.0), GONE, bare(2), job=RUNNING)
    actions = decide(past, look, judge(look, past, ONE_SPARE, at), ONE_SPARE, at)
    assert [type(item).__name__ for item in actions] == ["SetState", "Wait"]
    assert "n0 may yet be heard of" in actions[-1].reason
    assert at < NOW
