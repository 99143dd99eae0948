"""What only Slurm can tell: nodes taken out of a job, requeues, failed prologs, nodes that keep a job from ending."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.states import AgentPhase, Cause, JobState, RunState, VerdictKind
from supervisor.core import actions as do
from supervisor.core.decide import decide
from supervisor.core.failure_words import sentence
from supervisor.core.job_words import explain_job, slurms_own
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook
from supervisor.core.placement import affordable
from tests.supervisor.core.make import NOW, bare, control, failure, history, node, seen
from tests.supervisor.core.world import small_config

RUNNING = JobLook(state=JobState.RUNNING, job_id="77", nodes=("n0", "n1", "n2"))
LOST = failure(verdict="node-lost", cause="node-failure", signature="", nodes=("n1",), suspects=(1,))


def verdict_of(past=None, **changes):
    return judge(seen(**changes), past or history(), small_config(), NOW)


def act(past, at=NOW, **changes):
    look = seen(**changes)
    config = small_config()
    return decide(past, look, judge(look, past, config, at), config, at)


def test_a_node_that_slurm_took_out_of_the_job_is_lost_though_it_beats() -> None:
    assert verdict_of(job=RUNNING).kind is VerdictKind.HEALTHY
    found = verdict_of(job=replace(RUNNING, nodes=("n0", "n2")))
    assert (found.kind, found.nodes, found.suspects) == (VerdictKind.NODE_LOST, ("n1",), (1,))
    assert "Slurm has taken it out of job 77" in found.reason


def test_nothing_new_starts_where_slurm_has_taken_the_node_out() -> None:
    spare = replace(node(2), beat=replace(node(2).beat, workers=(), phase=AgentPhase.READY))
    past = history(failure(cause="signal", signature="", nodes=("n0",)))
    order = next(
        item
        for item in act(past, nodes=(node(0), node(1), spare), job=replace(RUNNING, nodes=("n0", "n2")))
        if isinstance(item, do.Prepare)
    )
    assert order.members == ("n0", "n2")


@pytest.mark.parametrize(
    ("state", "silent_s", "age_s", "kind"),
    [
        (JobState.PENDING, 9.0, 2.0, VerdictKind.ENDED),
        (JobState.HELD, 9.0, 2.0, VerdictKind.ENDED),
        (JobState.PENDING, 0.5, 2.0, VerdictKind.HEALTHY),  # the answer is older than the start
        (JobState.PENDING, 4.0, 5.0, VerdictKind.PENDING),
    ],
)
def test_a_job_that_ran_and_waits_again_was_requeued(state, silent_s, age_s, kind) -> None:
    nodes = (node(0, silent_s=silent_s), node(1, silent_s=silent_s))
    found = verdict_of(nodes=nodes, job=JobLook(state=state, job_id="77", reason="BeginTime", age_s=age_s))
    assert found.kind is kind
    if kind is VerdictKind.ENDED:
        assert found.cause is Cause.PREEMPTED
        past = history(failure(verdict="ended", cause="preempted", signature=""))
        actions = act(past, nodes=nodes, job=JobLook(state=state, job_id="77", age_s=age_s))
        assert any(isinstance(item, do.Cancel) for item in actions), "its next start would be refused"


@pytest.mark.parametrize(
    ("held", "dead", "goes_on"),
    [
        (("n1",), ("n1",), True),  # only the dead node, which the next attempt does without
        (("n1",), (), False),  # it answers: it is really ending
        (("n0", "n1"), ("n1",), False),
        (("n0", "n1"), ("n0", "n1"), False),  # n0 is not excluded: it could come back and be taken again
        ((), (), False),  # Slurm does not tell
    ],
)
def test_a_dead_node_costs_no_waiting_for_the_end_of_its_job(held, dead, goes_on) -> None:
    past = history(LOST, ev.CancelIntended(attempt=1, reason="a new attempt is needed"))
    job = JobLook(state=JobState.ENDING, job_id="77", nodes=held, dead=dead)
    actions = act(past, nodes=(node(0, done_code=1), node(1, silent_s=30.0)), job=job)
    submits = [item for item in actions if isinstance(item, do.Submit)]
    assert bool(submits) is goes_on
    if goes_on:
        assert any(isinstance(item, do.CloseAttempt) for item in actions)
        assert submits[0].exclude == ("n1",)


def test_a_job_that_ends_for_ever_is_told() -> None:
    past = history(failure(), ev.CancelIntended(attempt=1, reason="a new attempt is needed"))
    job = JobLook(state=JobState.ENDING, job_id="77", nodes=("n1",))
    at = past.newest.newest.failed_at
    assert not [
        item
        for item in act(past, at + 100, job=job)
        if isinstance(item, do.Tell) and "stuck" in item.alert.key
    ]
    assert [
        item
        for item in act(past, at + 1000, job=job)
        if isinstance(item, do.Tell) and "stuck" in item.alert.key
    ]


def test_a_failed_prolog_names_its_node_and_is_no_wish_of_a_person() -> None:
    job = JobLook(state=JobState.ENDED_FAILED, job_id="77", reason="CANCELLED, by Slurm", failed=("n1",))
    gone = (node(0, silent_s=9.0, done_code=143, generation=1),)
    found = verdict_of(nodes=gone, members=(), job=job)
    assert (found.kind, found.cause, found.nodes) == (VerdictKind.ENDED, Cause.LAUNCH, ("n1",))
    past = history(failure(verdict="ended", cause="launch", signature="", nodes=("n1",)))
    submit = next(item for item in act(past, nodes=gone, members=(), job=job) if isinstance(item, do.Submit))
    assert submit.exclude == ("n1",)


def test_agents_that_were_told_to_end_have_not_given_up() -> None:
    told = tuple(
        replace(node(number, silent_s=1.0, done_code=143, phase=AgentPhase.LEAVING).beat, workers=())
        for number in (0, 1)
    )
    nodes = tuple(replace(node(number), beat=beat) for number, beat in enumerate(told))
    job = JobLook(state=JobState.RUNNING, job_id="77")
    found = verdict_of(nodes=nodes, members=(), job=job, watched_s=5.0, running_s=5.0)
    assert not found.failed


@pytest.mark.parametrize(
    ("line", "cause", "nodes"),
    [
        ("slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", Cause.CANCELLED, ()),
        ("slurmstepd-n1: error: Prolog failure on node n2", Cause.LAUNCH, ("n2",)),
        ("srun: error: Task launch for StepId=1.0 failed on node n2: Job prolog failed", Cause.LAUNCH, ("n2",)),
        ("srun: error: Aborting, io error and missing step on node 1", Cause.NODE_FAILURE, ()),
        ("srun: error: Node failure on n3", Cause.NODE_FAILURE, ("n3",)),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", Cause.TIME_LIMIT, ()),
        ("slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT x DUE TO PREEMPTION ***", Cause.PREEMPTED, ()),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0", Cause.HOST_OOM, ()),
        ("srun: error: Unable to create step for job 5: Invalid account", Cause.LAUNCH, ()),
    ],
)  # fmt: skip
def test_slurms_own_lines_explain_an_end(line, cause, nodes) -> None:
    mine = slurms_own(["Traceback: Node failure on n9", line, "srun: Job step aborted"])
    assert mine == (line, "srun: Job step aborted")
    told = explain_job(mine)
    assert (told.cause, (told.blame_node,) if told.blame_node else ()) == (cause, nodes)
    found = verdict_of(
        job=JobLook(state=JobState.ENDED_FAILED, job_id="77"), nodes=(), members=(), job_lines=mine
    )
    assert (found.kind, found.cause, found.nodes) == (VerdictKind.ENDED, cause, nodes)


def test_lines_that_say_nothing_explain_nothing() -> None:
    assert explain_job(slurms_own(["srun: error: n1: task 0: Killed", "step 5: loss 2"])) is None


@pytest.mark.parametrize(
    ("exclude", "kept"),
    [
        (("n1",), ("n1",)),
        (("gone", "n1"), ("n1",)),  # sbatch refuses names that do not exist
        (("n1", "n2", "n3"), ("n1", "n2")),  # two must be left, the best founded exclusions first
        (("down", "n1", "n2"), ("down", "n1", "n2")),  # a node that cannot be used anyway costs nothing
    ],
)
def test_exclusions_that_slurm_can_honour(exclude, kept) -> None:
    usable = frozenset({"n1", "n2", "n3", "n4"})
    assert affordable(exclude, usable, usable | {"down"}, needed=2, share=1.0) == kept


def test_a_person_may_cancel_though_workers_died_first() -> None:
    """The verdict on the workers comes a moment before the clock is read again: it must not lie in the future."""
    past = history(failure(cause="signal", signature=""))
    at = past.newest.newest.failed_at
    stale = JobLook(state=JobState.RUNNING, job_id="77", age_s=10.0)
    config = small_config(supervisor={"in_place_limit": 0})
    look = seen(job=stale)
    actions = decide(past, look, judge(look, past, config, at), config, at - 0.004)
    assert not [item for item in actions if isinstance(item, do.Cancel)]
    assert not [
        item for item in actions if isinstance(item, do.SetState) and item.state is RunState.CANCELLED
    ]


@pytest.mark.parametrize(
    ("silent_s", "age_s", "ends"),
    [(9.0, 1.0, True), (9.0, 8.0, False), (2.0, 0.0, False)],
)
def test_a_job_that_all_agents_have_left_is_not_waited_for(silent_s, age_s, ends) -> None:
    """srun waits for the task of a node that was lost on the way; Slurm says that the job runs."""
    past = history(failure(verdict="saved", cause="time-limit", signature=""))
    left = tuple(node(number, silent_s=silent_s, done_code=75, phase=AgentPhase.LEAVING) for number in (0, 1))
    job = JobLook(state=JobState.RUNNING, job_id="77", age_s=age_s)
    at = past.newest.newest.failed_at + silent_s
    cancels = [item for item in act(past, at, nodes=left, job=job) if isinstance(item, do.Cancel)]
    assert bool(cancels) is ends


def test_an_answer_from_before_the_start_does_not_forbid_a_restart_in_place() -> None:
    """Slurm is asked every quarter of a minute: a job that crashes in its first seconds is still "pending" there."""
    past = history(failure(cause="signal", signature=""))
    stale = JobLook(state=JobState.PENDING, job_id="77", age_s=9.0)
    actions = act(past, past.newest.newest.failed_at + 1, job=stale)
    assert any(isinstance(item, do.Prepare) for item in actions)
    assert not any(isinstance(item, do.Cancel) for item in actions)


def test_a_down_node_is_not_excluded_when_the_job_needs_every_node_there_is() -> None:
    """Else the job could not start even after the repair, until the exclusion expires."""
    known = frozenset({"n1", "n2", "n3", "n4"})
    assert affordable(("n1",), known - {"n1"}, known, needed=4, share=1.0) == ()
    assert affordable(("n1",), known - {"n1"}, known, needed=3, share=1.0) == ("n1",)


@pytest.mark.parametrize(("share", "kept"), [(0.1, 4), (0.05, 2), (0.001, 1), (0.0, 0), (1.0, 30)])
def test_at_most_a_share_of_the_partition_is_excluded(share, kept) -> None:
    """Of the partition, not of the job: a small job on a large cluster may avoid every node that failed it."""
    blamed = tuple(f"n{number}" for number in range(30))
    known = frozenset(f"n{number}" for number in range(40))
    found = affordable(blamed, known, known, needed=2, share=share)
    assert found == blamed[:kept], "the newest blame first"


def test_the_newest_blame_comes_first_and_an_old_one_expires() -> None:
    lost = [
        failure(verdict="node-lost", cause="node-failure", signature="", nodes=(name,))
        for name in ("n9", "n1")
    ]
    past = history(lost[0])
    at = past.newest.newest.failed_at
    job = JobLook(state=JobState.ENDED_NODE, job_id="77")
    hours = small_config().supervisor.exclude_hours
    submit = next(item for item in act(past, at + 5, job=job) if isinstance(item, do.Submit))
    assert submit.exclude == ("n9",)
    late = [item for item in act(past, at + hours * 3600 + 5, job=job) if isinstance(item, do.Submit)]
    assert all(item.exclude == () for item in late)


def test_a_node_that_came_back_without_its_part_is_named_by_its_number() -> None:
    line = "srun: error: Aborting, io error and missing step on node 1"
    job = JobLook(state=JobState.ENDED_FAILED, job_id="77", nodes=("n0", "n1", "n2"))
    gone = (node(0, silent_s=9.0), node(1, silent_s=9.0))
    found = verdict_of(nodes=gone, job=job, job_lines=(line,))
    assert (found.kind, found.cause, found.nodes) == (VerdictKind.ENDED, Cause.NODE_FAILURE, ("n1",))
    assert " on n1, " in found.reason
    assert verdict_of(nodes=gone, job=replace(job, nodes=()), job_lines=(line,)).nodes == ()


@pytest.mark.parametrize("end", ["Killed", "Exited with exit code 1", "Exited with exit code 143"])
def test_tasks_that_end_after_their_step_was_cancelled_explain_nothing(end) -> None:
    """A slow agent is killed after KillWait: the cancel stays the cause. One that was killed before it does not."""
    cancelled = "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"
    ended = f"srun: error: n1: task 0: {end}"
    told = explain_job((cancelled, "srun: Job step aborted: Waiting up to 7 seconds", ended))
    assert told is not None
    assert told.cause is Cause.CANCELLED
    if end == "Killed":
        assert explain_job((ended, cancelled)) is None


def test_a_node_that_slurm_took_out_fell_silent_when_its_beat_did() -> None:
    silent = (node(0, silent_s=31.0), node(1, silent_s=35.0))
    found = verdict_of(nodes=silent, job=replace(RUNNING, nodes=("n0", "n2"), age_s=1.0))
    assert found.detected_s == 35.0
    told = failure(verdict="node-lost", cause="node-failure", nodes=found.nodes, limits=found.limits)
    assert "已被 Slurm 移出作业" in sentence(told, "zh")
    assert "?" not in sentence(told, "zh")


def test_a_node_that_the_job_has_gone_on_without_does_not_explain_its_end() -> None:
    lines = (
        "srun: error: Node failure on n1",
        "slurmstepd-n2: error: *** STEP 77.0 ON n2 CANCELLED AT 2026-11-30T23:48:45 ***",
    )
    over = JobLook(state=JobState.ENDED_FAILED, job_id="77", reason="FAILED: NonZeroExitCode", age_s=1.0)
    again = (
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n2"), reason="again"),
        ev.GenerationWent(attempt=1, generation=2, members=("n0", "n2"), master="n0", port=4000),
        ev.GenerationResumed(attempt=1, generation=2, step=4),
    )
    gone_on = seen(
        bare(0),
        bare(2),
        generation=2,
        members=("n0", "n2"),
        control=control(generation=2, members=("n0", "n2")),
        job=over,
        job_lines=lines,
    )
    assert judge(gone_on, history(LOST, *again), small_config(), NOW).cause is Cause.CANCELLED
    first = replace(gone_on, generation=1, members=("n0", "n1"), control=control(), nodes=(bare(0), bare(1)))
    assert judge(first, history(), small_config(), NOW).cause is Cause.NODE_FAILURE
