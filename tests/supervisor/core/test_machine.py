"""Generated histories: whatever happens in whatever order, never two jobs, and an end when the faults stop."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from contract import events as ev
from contract.requests import RequestKind
from contract.states import JobState, RunState
from supervisor.core.status import status
from supervisor.replay import replay
from tests.supervisor.core.world import World, small_config

NUMBERS = st.integers(0, 3)
ENDS = st.sampled_from(
    [
        JobState.ENDED_PREEMPTED,
        JobState.ENDED_LIMIT,
        JobState.ENDED_NODE,
        JobState.ENDED_FAILED,
        JobState.GONE,
    ]
)


class Runs(RuleBasedStateMachine):
    @initialize(spares=st.integers(0, 1), local=st.booleans())
    def begin(self, spares: int, local: bool) -> None:
        executor = "local" if local else "slurm"
        self.world = World(config=small_config(job={"spare_nodes": spares, "executor": executor}))
        self.cancelled: set[int] = set()  # attempts that a person ended in the queue
        self.resumed = False

    @rule(seconds=st.integers(1, 12))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.move()
            self.world.live_tick()

    @rule(seconds=st.integers(1, 40))
    def the_supervisor_sleeps(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.move()
        self.world.open_eyes()

    @rule(effects=st.integers(1, 6))
    def the_supervisor_dies_soon(self, effects: int) -> None:
        self.world.killed_after = self.world.effects + effects

    @rule(number=NUMBERS)
    def a_rank_is_killed(self, number: int) -> None:
        self.world.kill_rank(number)

    @rule(number=NUMBERS)
    def a_rank_raises(self, number: int) -> None:
        self.world.raise_in_rank(number, "odd")

    @rule(number=NUMBERS)
    def a_rank_hangs(self, number: int) -> None:
        self.world.hang_rank(number)

    @rule(number=NUMBERS)
    def a_node_is_lost(self, number: int) -> None:
        self.world.lose_node(number)

    @rule(number=NUMBERS, seconds=st.integers(1, 8))
    def an_agent_is_late(self, number: int, seconds: int) -> None:
        self.world.hold_up(number, seconds)

    @rule(seconds=st.integers(0, 30))
    def slurm_takes_out_lost_nodes(self, seconds: int) -> None:
        self.world.takes_out_after = seconds

    @rule(state=ENDS)
    def the_system_ends_the_job(self, state: JobState) -> None:
        self.world.end_job(state)

    @rule()
    def a_person_ends_the_job(self) -> None:
        job = self.world.job()
        if job is not None and job.ends_in is None:
            self.cancelled.add(job.attempt)
        self.world.end_job(JobState.ENDED_CANCELLED)

    @rule()
    def the_time_limit_comes(self) -> None:
        self.world.usr1 = True

    @rule(silent=st.booleans())
    def the_queue_falls_silent_or_answers(self, silent: bool) -> None:
        self.world.queue_silent = silent

    @rule(seconds=st.integers(0, 20))
    def the_queue_lies_late(self, seconds: int) -> None:
        self.world.queue_lag = seconds

    @rule(times=st.integers(1, 2), seconds=st.integers(0, 4))
    def replies_are_lost(self, times: int, seconds: int) -> None:
        self.world.lose_replies, self.world.hide_new_jobs_s = times, seconds

    @rule(times=st.integers(1, 3))
    def submissions_fail(self, times: int) -> None:
        self.world.refuse_submissions = times

    @rule(skew=st.sampled_from([-600.0, 0.0, 600.0]))
    def the_clock_jumps(self, skew: float) -> None:
        self.world.skew = skew

    @rule(kind=st.sampled_from(list(RequestKind)))
    def a_person_asks(self, kind: RequestKind) -> None:
        self.resumed |= kind is RequestKind.RESUME
        self.world.ask(kind)

    @invariant()
    def never_two_jobs(self) -> None:
        if hasattr(self, "world"):
            assert self.world.most_jobs <= 1
            assert self.world.submitted_after_end == 0

    @invariant()
    def a_persons_cancel_is_final(self) -> None:
        """Unless it met a cancel of ours: without accounting nobody can tell the two apart."""
        if not hasattr(self, "world") or self.resumed:
            return
        ours = {
            event.body.attempt for event in self.world.journal if isinstance(event.body, ev.CancelIntended)
        }
        for attempt in self.cancelled - ours:
            assert max(self.world.jobs) == attempt, "a cancelled run was submitted again"

    @invariant()
    def the_state_can_be_told(self) -> None:
        if hasattr(self, "world"):
            facts = status(self.world.history, *self.world.look(), self.world.wall)
            assert facts["ettr"] is None or 0 <= facts["ettr"] <= 1

    def teardown(self) -> None:
        """The faults stop."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.queue_silent, world.killed_after, world.refuse_submissions, world.usr1 = False, None, 0, False
        world.queue_lag = world.lose_replies = world.hide_new_jobs_s = 0
        state = world.run(2500)
        assert state.final, (state, world.history.reason, world.kinds()[-10:])
        assert not world.live_jobs
        assert not world.requests
        assert world.most_jobs <= 1
        assert world.submitted_after_end == 0
        assert [item for item in replay(world.journal, world.config) if not item.same] == []
        if state is RunState.COMPLETED:
            assert world.checkpoint is not None
            assert world.checkpoint[0] == world.config.run.steps


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=400,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class ManyRuns(Runs):
    """The same, ten times over."""


TestManyRuns = ManyRuns.TestCase
TestManyRuns.settings = settings(TestRuns.settings, max_examples=4000)
TestManyRuns = pytest.mark.slow(TestManyRuns)


@pytest.mark.parametrize("kind", [RequestKind.PAUSE, RequestKind.CANCEL])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_wish_to_stop_waits_for_a_job_that_the_queue_does_not_show_yet(
    kind: RequestKind, resumed: bool
) -> None:
    """The answer of the submission was lost and the controller shows the new job seconds late: it is there."""
    world = World(config=small_config(job={"spare_nodes": 0, "executor": "slurm"}))
    world.lose_replies, world.hide_new_jobs_s = 1, 3
    for _ in range(2):
        world.move()
        world.live_tick()
    world.ask(kind)
    if resumed:
        world.ask(RequestKind.RESUME)
    state = world.run(600)
    assert world.most_jobs <= 1
    assert not (state.final and world.live_jobs)
