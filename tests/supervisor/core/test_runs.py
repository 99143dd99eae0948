"""Whole runs in the tiny world: each fault, its answer, and being killed between any two effects."""

import pytest

from contract.events import GenerationIntended, Judged
from contract.requests import RequestKind
from contract.states import JobState, RunState
from supervisor.core import actions as do
from tests.supervisor.core.world import World, small_config, training


def _world(**sections) -> World:
    world = World(config=small_config(**sections))
    world.until(training)
    return world


def _judged(world: World) -> list[Judged]:
    return [event.body for event in world.journal if isinstance(event.body, Judged)]


def test_an_undisturbed_run_completes_in_one_generation() -> None:
    world = World()
    assert world.run() is RunState.COMPLETED
    assert len(world.jobs) == 1
    assert not _judged(world)
    assert [str(item.alert.severity) for item in world.history.outbox.values()] == ["info"]


def test_a_killed_rank_is_answered_in_place() -> None:
    world = _world()
    world.kill_rank(1)
    assert world.run() is RunState.COMPLETED
    (failure,) = _judged(world)
    assert (failure.verdict, failure.cause, failure.suspects) == ("crashed", "signal", (1,))
    assert len(world.jobs) == 1
    assert world.history.newest.newest.number == 2
    keys = [item.alert.key for item in world.history.outbox.values()]
    assert keys == ["failure:signal", "recovered:1.2", "completed"]


def test_a_hung_rank_is_named_and_answered_in_place() -> None:
    world = _world()
    world.until(lambda world: world.workers()[0].step > 2)
    world.hang_rank(1)
    assert world.run() is RunState.COMPLETED
    (failure,) = _judged(world)
    assert (failure.verdict, failure.cause, failure.suspects) == ("hung", "hang", (1,))
    assert "rank 1 on n1 stands still in forward" in failure.reason
    assert failure.detected_s < 10


def test_a_lost_node_with_a_spare_is_replaced_in_place() -> None:
    world = _world(job={"spare_nodes": 1})
    world.lose_node(1)
    assert world.run() is RunState.COMPLETED
    assert len(world.jobs) == 1
    orders = [event.body for event in world.journal if isinstance(event.body, GenerationIntended)]
    assert orders[-1].members == ("n0", "n2")
    assert _judged(world)[0].verdict == "node-lost", "the victims' words come first and are no cause"


def test_a_lost_node_without_a_spare_means_a_new_attempt_without_it() -> None:
    world = _world()
    world.lose_node(1)
    assert world.run() is RunState.COMPLETED
    assert len(world.jobs) == 2
    assert world.history.newest.exclude == ("n1",)


@pytest.mark.parametrize("state", [JobState.ENDED_PREEMPTED, JobState.ENDED_LIMIT, JobState.ENDED_NODE])
def test_a_job_that_the_system_ended_is_followed_by_another(state: JobState) -> None:
    world = _world()
    world.end_job(state)
    assert world.run() is RunState.COMPLETED
    assert len(world.jobs) == 2


def test_saved_before_the_limit_is_followed_by_another_without_a_cancel() -> None:
    world = _world()
    world.usr1 = True
    assert world.run() is RunState.COMPLETED
    assert _judged(world)[0].verdict == "saved"
    assert "CancelIntended" not in world.kinds()


def test_cancelled_by_a_person_is_final_and_resume_goes_on() -> None:
    world = _world()
    world.end_job(JobState.ENDED_CANCELLED)
    assert world.run() is RunState.CANCELLED
    assert world.run(20) is RunState.CANCELLED
    assert len(world.jobs) == 1
    world.ask(RequestKind.RESUME)
    world.until(lambda world: world.history.state is RunState.RUNNING)
    assert world.run() is RunState.COMPLETED


def test_pause_saves_and_leaves_and_stays_quiet() -> None:
    world = _world()
    world.ask(RequestKind.PAUSE)
    assert world.run() is RunState.PAUSED
    assert not world.history.outbox
    assert not _judged(world)
    saved = world.checkpoint
    world.ask(RequestKind.RESUME)
    world.until(lambda world: world.history.state is RunState.RUNNING)
    assert world.resumes[(2, 1)] == saved[0]
    assert world.run() is RunState.COMPLETED


def test_pause_of_a_job_that_waits_in_the_queue() -> None:
    world = World()
    world.tick()
    world.ask(RequestKind.PAUSE)
    assert world.run() is RunState.PAUSED
    assert not world.live_jobs


def test_pause_of_a_hung_run_ends_the_job() -> None:
    world = _world()
    world.hang_rank(0)
    world.ask(RequestKind.PAUSE)
    assert world.run() is RunState.PAUSED
    assert not world.live_jobs


def test_cancel_ends_the_job_and_is_final() -> None:
    world = _world()
    world.ask(RequestKind.CANCEL)
    assert world.run() is RunState.CANCELLED
    assert not world.live_jobs
    assert not world.requests
    assert world.run(10) is RunState.CANCELLED
    assert len(world.jobs) == 1


def test_cancel_beats_an_open_pause() -> None:
    world = _world()
    world.ask(RequestKind.PAUSE)
    world.ask(RequestKind.CANCEL)
    assert world.run() is RunState.CANCELLED
    assert not world.requests


def test_requests_that_make_no_sense_are_answered() -> None:
    world = _world()
    for kind in (RequestKind.RESUME, RequestKind.UNKNOWN):
        world.ask(kind)
    world.tick()
    assert not world.requests
    assert world.run() is RunState.COMPLETED
    for kind in (RequestKind.PAUSE, RequestKind.RESUME, RequestKind.CANCEL):
        world.ask(kind)
    assert world.run(5) is RunState.COMPLETED
    assert not world.requests


def test_the_same_exception_twice_at_the_same_step_stops_the_run() -> None:
    world = _world()
    for _ in range(2):
        world.until(training)
        world.until(lambda world: world.workers()[0].step == 3)
        world.raise_in_rank(1)
        world.move()
        world.live_tick()
    assert world.run() is RunState.FAILED
    last = list(world.history.outbox.values())[-1].alert
    assert last.severity == "critical"
    assert "RuntimeError: bug at step 3" in last.text["zh"]
    assert "建议" in last.text["zh"]
    assert not world.live_jobs, "nodes are not held for a run that is over"


def test_killed_from_outside_is_never_deterministic() -> None:
    world = _world()
    for _ in range(4):
        world.until(training)
        world.until(lambda world: world.workers()[0].step == 3)
        world.kill_rank(0)
        world.move()
        world.live_tick()
    assert world.run() is RunState.COMPLETED


def test_after_the_limit_of_restarts_in_place_comes_a_new_job() -> None:
    world = _world(supervisor={"in_place_limit": 1})
    for _ in range(2):
        world.until(training)
        world.kill_rank(0)
        world.move()
        world.live_tick()
    assert world.run() is RunState.COMPLETED
    assert len(world.jobs) == 2


def test_a_silent_queue_leads_to_no_cancel_and_no_submit() -> None:
    world = _world()
    world.queue_silent = True
    world.lose_node(0)
    world.lose_node(0)
    jobs = len(world.jobs)
    for _ in range(200):
        world.move()
        actions = world.tick()
        assert not any(isinstance(action, do.Cancel | do.Submit | do.CloseAttempt) for action in actions)
    assert len(world.jobs) == jobs
    assert world.history.state is RunState.UNKNOWN
    assert any("unknown" in item.alert.key for item in world.history.outbox.values())
    world.queue_silent = False
    assert world.run() is RunState.COMPLETED


def test_a_worker_is_restarted_in_place_while_the_queue_is_silent() -> None:
    world = _world()
    world.queue_silent = True
    world.kill_rank(0)
    world.until(lambda world: world.history.newest.newest.number == 2)
    world.until(training)


def test_a_refused_submission_is_tried_again_with_its_number() -> None:
    world = World()
    world.refuse_submissions = 4
    assert world.run() is RunState.COMPLETED
    assert list(world.jobs) == [1]
    assert any(item.alert.key == "submit:1" for item in world.history.outbox.values())


def test_a_second_tick_on_an_unchanged_world_does_nothing() -> None:
    faults = (
        lambda world: None,
        lambda world: world.kill_rank(1),
        lambda world: world.hang_rank(0),
        lambda world: world.lose_node(1),
        lambda world: world.end_job(JobState.ENDED_PREEMPTED),
        lambda world: world.ask(RequestKind.PAUSE),
        lambda world: world.ask(RequestKind.CANCEL),
    )
    for fault in faults:
        world = _world()
        fault(world)
        for _ in range(60):
            world.move()
            world.tick()
            world.tick()  # closing an attempt, a resume and an answer may each need the refolded history
            again = [action for action in world.tick() if not isinstance(action, do.Wait)]
            assert not again


FAULTS = {
    "none": lambda world: None,
    "kill": lambda world: world.kill_rank(1),
    "hang": lambda world: world.hang_rank(0),
    "lose": lambda world: world.lose_node(1),
    "preempt": lambda world: world.end_job(JobState.ENDED_PREEMPTED),
    "save": lambda world: setattr(world, "usr1", True),
    "scancel": lambda world: world.end_job(JobState.ENDED_CANCELLED),
    "pause": lambda world: world.ask(RequestKind.PAUSE),
    "cancel": lambda world: world.ask(RequestKind.CANCEL),
}


@pytest.mark.parametrize("name", FAULTS)
def test_killed_after_every_single_effect_it_converges_to_the_same_end(name: str) -> None:
    config = small_config(run={"steps": 90})
    calm = World(config=config)
    calm.until(training)
    first = calm.effects
    FAULTS[name](calm)
    end = calm.run()
    for at in range(1, calm.effects + 1):
        world = World(config=config)
        if at <= first:
            world.killed_after = at
        world.until(training)
        if at > first:
            world.killed_after = at
        FAULTS[name](world)
        assert world.run() is end, at
        assert world.most_jobs <= 1, at
        assert not world.submitted_after_end
        assert not world.live_jobs
