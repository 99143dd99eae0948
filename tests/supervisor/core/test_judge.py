"""One case a row: what a look means, and the words and numbers that it rests on."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.states import AgentPhase, Cause, ControlPhase, JobState, Phase, VerdictKind
from supervisor.core.failure_words import sentence, title
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, LogLine, NodeSeen, Observation
from supervisor.core.reasons import chinese
from supervisor.core.verdict import Verdict
from tests.supervisor.core.make import (
    BEGUN,
    NOW,
    bare,
    control,
    events,
    exit_of,
    failure,
    history,
    node,
    seen,
    worker,
)
from tests.supervisor.core.world import fold_of, small_config

CONFIG = small_config()


def look(observation: Observation, past=None, config=CONFIG) -> Verdict:
    return judge(observation, history() if past is None else past, config, NOW)


def job(state: JobState, **changes) -> JobLook:
    return JobLook(state=state, job_id="77", **changes)


NO_ATTEMPT = Observation(attempt=0, generation=0, job=JobLook(state=JobState.GONE))


def test_no_attempt_is_pending() -> None:
    assert look(NO_ATTEMPT, fold_of(events(BEGUN[0]))).kind is VerdictKind.PENDING


def test_an_attempt_that_was_not_accepted_yet_is_pending_with_the_reason() -> None:
    past = fold_of(events(*BEGUN[:2], ev.SubmitFailed(attempt=1, reason="socket timed out", permanent=False)))
    verdict = look(NO_ATTEMPT, past)
    assert verdict.kind is VerdictKind.PENDING
    assert "socket timed out" in verdict.reason


def test_a_control_file_that_cannot_be_read_is_unknown() -> None:
    verdict = look(replace(NO_ATTEMPT, problems=("control.json: Input/output error",)))
    assert verdict.kind is VerdictKind.UNKNOWN
    assert "Input/output error" in verdict.reason
    assert not verdict.failed


def test_healthy() -> None:
    verdict = look(seen())
    assert verdict.kind is VerdictKind.HEALTHY
    assert verdict.reason == "all 2 workers train, step 10 of 100"


@pytest.mark.parametrize(
    ("code", "text", "kind", "cause"),
    [
        (-9, "", "crashed", "signal"),
        (-15, "", "crashed", "signal"),
        (-11, "", "crashed", "signal"),
        (1, "", "crashed", "unexplained"),
        (1, "RuntimeError: bug", "crashed", "traceback"),
        (1, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "crashed", "gpu-oom"),
        (1, "OSError: [Errno 28] No space left on device", "crashed", "disk-full"),
        (
            1,
            "SaveError: x could not be written; rank 1: OSError: [Errno 122] Disk quota exceeded",
            "crashed",
            "disk-full",
        ),
        (
            1,
            "SaveError: x could not be written; rank 1: OSError: [Errno 30] Read-only file system",
            "crashed",
            "filesystem",
        ),
        (
            1,
            "SaveError: x could not be written; rank 1: its file system is not mounted",
            "crashed",
            "filesystem",
        ),
        (
            1,
            "StuckWriteError: rank 1: the file system does not answer: writing a checkpoint has stood still for 90 s",
            "crashed",
            "filesystem",
        ),
        (1, "ModuleNotFoundError: No module named 'flash_attn'", "crashed", "import"),
        (1, "RuntimeError: EADDRINUSE: Address already in use", "crashed", "port"),
        (65, "NumericsError: loss is nan at step 11", "crashed", "nan"),
        (77, "RefusedError: no valid checkpoint from step 1 on", "refused", "checkpoint"),
        (78, "ConfigError: bf16 is not supported here", "crashed", "config"),
    ],
)
def test_how_a_worker_ended(code: int, text: str, kind: str, cause: str) -> None:
    record = exit_of(1, code, exception_type=text.partition(":")[0], exception_text=text)
    age_s = 2.5 if code == -15 else 0.5  # of SIGTERM the agent is asked first
    beat = node(1, worker(1, exit_code=code, exit_age_s=age_s))
    verdict = look(seen(node(0), beat, exits=(record,)))
    assert (verdict.kind, verdict.cause) == (kind, cause)
    assert (verdict.suspects, verdict.nodes, verdict.step) == ((1,), ("n1",), 10)
    assert verdict.detected_s == pytest.approx(age_s + 0.4)
    assert (text.partition(": ")[2] or "rank 1 on n1") in verdict.reason


def test_a_signal_in_a_beat_needs_no_record() -> None:
    verdict = look(seen(node(0), node(1, worker(1, exit_code=-9, exit_age_s=0.1))))
    assert verdict.kind is VerdictKind.CRASHED
    assert "SIGKILL" in verdict.reason
    assert verdict.signature == "", "killed from outside is never deterministic"


def test_an_exit_code_in_a_beat_waits_for_its_record() -> None:
    young = seen(node(0), node(1, worker(1, exit_code=1, exit_age_s=0.1)))
    assert look(young).kind is VerdictKind.HEALTHY
    old = seen(node(0), node(1, worker(1, exit_code=1, exit_age_s=6.0)))
    assert look(old).cause is Cause.UNEXPLAINED


def test_an_ordered_end_explains_nothing() -> None:
    assert look(seen(exits=(exit_of(1, -9, ordered=True),))).kind is VerdictKind.HEALTHY


def test_an_end_on_a_node_that_is_no_member_explains_nothing() -> None:
    assert look(seen(exits=(exit_of(1, -9, node="n7"),))).kind is VerdictKind.HEALTHY


def test_a_refusal_without_the_claim_is_another_jobs() -> None:
    assert look(seen(exits=(exit_of(1, 77),), claim_job="99")).kind is VerdictKind.HEALTHY


PEER = {"exception_type": "RuntimeError", "exception_text": "Connection closed by peer [10.0.0.2]:51234"}


def test_across_nodes_a_victims_words_lose() -> None:
    exits = (exit_of(0, 1, ended_s=1.0, **PEER), exit_of(1, -9, ended_s=900.0))
    verdict = look(seen(exits=exits))
    assert (verdict.cause, verdict.suspects) == (Cause.SIGNAL, (1,))


def test_on_one_node_the_earliest_is_the_cause() -> None:
    nodes = (
        node(0, worker(0, exit_code=1, exit_age_s=1.0), worker(1, exit_code=1, exit_age_s=4.0)),
        node(1, worker(2), worker(3)),
    )
    exits = (
        exit_of(0, 1, node="n0", ended_s=53.0, exception_type="ValueError", exception_text="late"),
        exit_of(1, 1, node="n0", ended_s=50.0, exception_type="KeyError", exception_text="first"),
    )
    config = small_config(job={"ranks_per_node": 2})
    verdict = look(seen(*nodes, exits=exits), config=config)
    assert verdict.suspects == (1,)
    assert "first" in verdict.reason


def test_a_tie_names_all() -> None:
    nodes = (
        node(0, worker(0, exit_code=1, exit_age_s=2.0)),
        node(1, worker(1, exit_code=1, exit_age_s=2.2)),
    )
    exits = tuple(exit_of(rank, 1, exception_type="RuntimeError", exception_text="bug") for rank in (0, 1))
    verdict = look(seen(*nodes, exits=exits))
    assert set(verdict.suspects) == {0, 1}
    assert set(verdict.nodes) == {"n0", "n1"}


def test_victims_alone_wait_a_moment_for_the_cause() -> None:
    nodes = (node(0, worker(0, exit_code=1, exit_age_s=0.5)), node(1))
    assert look(seen(*nodes, exits=(exit_of(0, 1, **PEER),))).kind is VerdictKind.HEALTHY
    nodes = (node(0, worker(0, exit_code=1, exit_age_s=9.0)), node(1))
    assert look(seen(*nodes, exits=(exit_of(0, 1, **PEER),))).cause is Cause.COMM_PEER


def test_victims_of_a_silent_node_wait_until_it_is_lost() -> None:
    victim = node(0, worker(0, exit_code=1, exit_age_s=4.5))
    exits = (exit_of(0, 1, **PEER),)
    assert not look(seen(victim, node(1, silent_s=5.0), exits=exits)).failed
    verdict = look(seen(victim, node(1, silent_s=6.5), exits=exits))
    assert (verdict.kind, verdict.nodes) == (VerdictKind.NODE_LOST, ("n1",))


def test_all_finished_is_completed() -> None:
    verdict = look(seen(exits=(exit_of(0, 0, step=100), exit_of(1, 0, step=100))))
    assert (verdict.kind, verdict.step) == (VerdictKind.COMPLETED, 100)


def test_one_finished_is_not_completed() -> None:
    assert look(seen(exits=(exit_of(0, 0, step=100),))).kind is VerdictKind.HEALTHY


@pytest.mark.parametrize("code", [75, -10])
def test_saved_before_the_time_limit(code: int) -> None:
    verdict = look(seen(exits=(exit_of(0, 75), exit_of(1, code))))
    assert (verdict.kind, verdict.cause, verdict.failed) == (VerdictKind.SAVED, Cause.TIME_LIMIT, True)


def test_who_dies_of_the_signal_that_asks_to_save_is_not_said_to_have_saved() -> None:
    told = control(phase=ControlPhase.SAVE)
    verdict = look(seen(exits=(exit_of(0, -10), exit_of(1, -10)), control=told, members=()))
    assert "2 of 2 workers left to pause without saving" in verdict.reason
    assert chinese(verdict.reason, {}).startswith("2 个 worker 中有 2 个未保存就退出")
    limit = look(seen(exits=(exit_of(0, 75), exit_of(1, -10))))
    assert "1 of 2 workers left before the job's time limit without saving" in limit.reason
    recorded = failure(verdict="saved", cause="time-limit", reason=limit.reason, limits=limit.limits)
    assert title(recorded, "zh") == "作业到时限，未保存"
    assert "未保存就退出" in sentence(recorded, "zh")


def test_saved_for_a_pause_is_no_failure() -> None:
    told = control(phase=ControlPhase.SAVE)
    verdict = look(seen(exits=(exit_of(0, 75), exit_of(1, 75)), control=told, members=()))
    assert (verdict.kind, verdict.failed) == (VerdictKind.SAVED, False)


@pytest.mark.parametrize(
    ("state", "kind", "cause"),
    [
        (JobState.ENDED_LIMIT, "ended", "time-limit"),
        (JobState.ENDED_PREEMPTED, "ended", "preempted"),
        (JobState.ENDED_NODE, "ended", "node-failure"),
        (JobState.ENDED_CANCELLED, "cancelled", "cancelled"),
        (JobState.ENDED_FAILED, "ended", "unexplained"),
        (JobState.ENDED_OK, "ended", "unexplained"),
        (JobState.GONE, "ended", "unexplained"),
    ],
)
def test_the_job_ended(state: JobState, kind: str, cause: str) -> None:
    quiet = (node(0, silent_s=9.0), node(1, silent_s=9.0))
    verdict = look(seen(*quiet, job=job(state)))
    assert (verdict.kind, verdict.cause) == (kind, cause)
    # Its end kills the workers: their signals do not hide it.
    nodes = (
        node(0, worker(0, exit_code=-15, exit_age_s=1.0)),
        node(1, worker(1, exit_code=-9, exit_age_s=1.0)),
    )
    if cause != "unexplained":
        assert look(seen(*nodes, job=job(state))).cause == cause


def test_a_job_that_ended_without_agents_failed_to_launch() -> None:
    verdict = look(seen(job=job(JobState.ENDED_FAILED), nodes=(), members=()))
    assert (verdict.kind, verdict.cause) == (VerdictKind.ENDED, Cause.LAUNCH)


def test_ended_well_at_the_target_without_records_is_completed() -> None:
    nodes = (node(0, worker(0, step=100)), node(1, worker(1, step=100)))
    assert look(seen(*nodes, job=job(JobState.ENDED_OK))).kind is VerdictKind.COMPLETED


def test_an_end_that_we_asked_for_is_no_failure() -> None:
    past = history(ev.CancelIntended(attempt=1, reason="new attempt"))
    observation = seen(job=job(JobState.ENDED_CANCELLED), exits=(exit_of(0, -15), exit_of(1, -15)))
    verdict = look(observation, past)
    assert (verdict.kind, verdict.failed) == (VerdictKind.ENDED, False)


def test_gone_is_contradicted_by_agents_that_live() -> None:
    nodes = (node(0, alive=True), node(1, alive=True))
    assert look(seen(*nodes, job=job(JobState.GONE))).kind is VerdictKind.HEALTHY
    assert look(seen(job=job(JobState.GONE))).kind is VerdictKind.HEALTHY  # another host: they beat


def test_a_job_in_the_queue_is_pending_however_long() -> None:
    verdict = look(seen(nodes=(), members=(), job=job(JobState.PENDING, reason="Resources"), watched_s=1e6))
    assert verdict.kind is VerdictKind.PENDING
    assert "Resources" in verdict.reason
    assert "by itself" in look(seen(nodes=(), members=(), job=job(JobState.HELD))).reason


def test_a_dead_agent_is_a_lost_node() -> None:
    verdict = look(seen(node(0, alive=True), node(1, alive=False)))
    assert (verdict.kind, verdict.cause, verdict.nodes) == (
        VerdictKind.NODE_LOST,
        Cause.NODE_FAILURE,
        ("n1",),
    )


def test_an_agent_that_left_as_it_should_is_not_lost() -> None:
    gone = node(1, worker(1, exit_code=0), alive=False, done_code=0)
    assert look(seen(node(0), gone, exits=(exit_of(1, 0),))).kind is not VerdictKind.NODE_LOST


def test_a_silent_node_is_lost_only_while_others_move() -> None:
    assert look(seen(node(0), node(1, silent_s=7.0))).kind is VerdictKind.NODE_LOST
    assert look(seen(node(0, silent_s=7.0), node(1, silent_s=7.0))).kind is VerdictKind.UNKNOWN


def test_a_silent_node_whose_lock_is_held_is_not_lost() -> None:
    assert look(seen(node(0), node(1, silent_s=7.0, alive=True))).kind is VerdictKind.HEALTHY


def test_new_eyes_do_not_call_a_silent_node_lost() -> None:
    assert look(seen(node(0), node(1, silent_s=7.0), watched_s=5.0)).kind is VerdictKind.HEALTHY


def test_an_unreadable_file_is_never_read_as_death() -> None:
    observation = seen(node(0), node(1, silent_s=7.0), problems=("beats/n1: Input/output error",))
    assert not look(observation).failed
    alone = seen(node(0, silent_s=7.0), members=("n0",), problems=("beats/n0: Input/output error",))
    assert look(alone).kind is VerdictKind.UNKNOWN


def test_a_single_silent_node_is_unknown() -> None:
    config = small_config(job={"nodes": 1})
    verdict = look(seen(node(0, silent_s=100.0), members=("n0",)), config=config)
    assert verdict.kind is VerdictKind.UNKNOWN
    assert verdict.detected_s == pytest.approx(100.0)


def test_no_queue_and_no_agent_is_unknown() -> None:
    observation = seen(
        nodes=(), members=(), job=JobLook(state=JobState.UNKNOWN, reason="squeue gave no answer")
    )
    assert look(observation).kind is VerdictKind.UNKNOWN


def test_a_silent_queue_beside_beating_agents_is_no_reason_to_worry() -> None:
    assert look(seen(job=JobLook(state=JobState.UNKNOWN))).kind is VerdictKind.HEALTHY


# --- hangs


def stuck(idle: float = 30.0, **changes) -> NodeSeen:
    return node(1, worker(1, idle_s=idle, **changes))


def waiting(idle: float = 29.0, **changes) -> NodeSeen:
    return node(0, worker(0, idle_s=idle, **({"phase": Phase.BACKWARD} | changes)))


def test_the_rank_that_is_behind_is_the_suspect() -> None:
    verdict = look(seen(waiting(), stuck()))
    assert (verdict.kind, verdict.cause, verdict.suspects) == (VerdictKind.HUNG, Cause.HANG, (1,))
    assert verdict.reason == (
        "rank 1 on n1 stands still in forward after step 10 for 30.0 s (limit 8.0 s, usual 1.0 s)"
    )
    assert verdict.limits["limit_s"] == pytest.approx(8.0)
    assert verdict.detected_s == pytest.approx(30.4)


@pytest.mark.parametrize(
    ("behind", "ahead"),
    [
        ({"step": 9, "phase": Phase.OPTIMIZER}, {"step": 10, "phase": Phase.DATA}),
        ({"phase": Phase.SAVE}, {"phase": Phase.DATA}),
        ({"phase": Phase.EVALUATE}, {"phase": Phase.SAVE}),
        ({"phase": Phase.FORWARD, "micro_step": 1}, {"phase": Phase.DATA, "micro_step": 2}),
        ({"phase": Phase.BACKWARD, "micro_step": 3}, {"phase": Phase.OPTIMIZER}),
        ({"step": 0, "phase": Phase.LOAD}, {"step": 8, "phase": Phase.START, "micro_step": 1}),
    ],
)
def test_who_is_behind(behind: dict, ahead: dict) -> None:
    config = small_config(monitor={"save_s": 20.0, "evaluate_s": 20.0, "load_s": 20.0})
    verdict = look(seen(waiting(60.0, **ahead), stuck(50.0, **behind)), config=config)
    assert verdict.suspects == (1,)


def test_all_ranks_at_the_same_point_are_named_and_no_node_is_blamed() -> None:
    verdict = look(seen(waiting(29.0, phase=Phase.FORWARD), stuck(30.0)))
    assert (sorted(verdict.suspects), verdict.nodes) == ([0, 1], ())
    assert verdict.reason == (
        "all 2 ranks, at the same point, stand still in forward after step 10 for 29.0 s (limit 8.0 s, usual 1.0 s)"
    )
    assert verdict.signature == "hang|forward|everywhere"


def test_two_of_three_at_the_same_place_behind_are_both_suspects() -> None:
    two = node(1, worker(1, idle_s=30.0), worker(2, idle_s=31.0))
    verdict = look(seen(waiting(), two))
    assert (verdict.suspects, verdict.nodes) == ((2, 1), ("n1",))


def test_the_last_to_come_to_a_place_is_progress_of_all_who_wait_there() -> None:
    """A slow loader: the others have waited for it at their place, and it has just come."""
    assert look(seen(waiting(30.0, phase=Phase.FORWARD), stuck(0.5))).kind is VerdictKind.HEALTHY


@pytest.mark.parametrize(
    ("gpus", "busy", "suspects"),
    [
        (0, (0.0, 1.0), (1,)),  # a wait in Gloo sleeps: who computes is waited for
        (1, (1.0, 0.0), (1,)),  # a wait in NCCL spins: who sleeps does not wait for the others
        (0, (0.0, None), (1, 0)),
        (0, (1.0, 1.0), (1, 0)),
    ],
)
def test_at_the_same_place_the_odd_one_is_the_suspect(gpus, busy, suspects) -> None:
    nodes = (waiting(29.0, phase=Phase.FORWARD, busy=busy[0]), stuck(30.0, busy=busy[1]))
    verdict = look(seen(*nodes), config=small_config(job={"gpus_per_node": gpus}))
    assert verdict.suspects == suspects


def test_of_many_at_the_same_place_the_fewer_are_odd() -> None:
    many = [
        worker(rank, idle_s=30.0, phase=Phase.FORWARD, busy=0.0 if rank == 5 else 1.0) for rank in range(1, 8)
    ]
    verdict = look(seen(node(0, worker(0, idle_s=30.0, busy=1.0)), node(1, *many)))
    assert verdict.suspects == (5,)


@pytest.mark.parametrize(
    ("phase", "idle", "busy", "quiet", "kind"),
    [
        (Phase.FORWARD, 12.0, 0.0, None, VerdictKind.HUNG),
        (Phase.FORWARD, 12.0, 0.9, None, VerdictKind.HEALTHY),  # busy: twice the limit of 8 s
        (Phase.FORWARD, 17.0, 0.9, None, VerdictKind.HUNG),  # and not for ever
        (Phase.FORWARD, 12.0, 0.0, 0.5, VerdictKind.HUNG),  # bytes are no step
        (Phase.SAVE, 60.0, 0.0, 0.5, VerdictKind.HEALTHY),  # it writes
        (Phase.SAVE, 60.0, 0.0, 40.0, VerdictKind.HUNG),  # it wrote once
        (Phase.SAVE, 60.0, 0.0, None, VerdictKind.HUNG),  # not measured
        (Phase.EVALUATE, 60.0, 0.0, 1.0, VerdictKind.HEALTHY),
        (Phase.SAVE, 1900.0, 0.0, 0.5, VerdictKind.HUNG),  # the ceiling holds for who writes for ever too
    ],
)
def test_a_kill_needs_two_signs(phase, idle, busy, quiet, kind) -> None:
    usual = {"forward": 0.5, "backward": 1.0, "save": 2.0, "evaluate": 2.0}
    watched = {"usual": usual, "watched_s": 5000.0}
    step = 11 if phase is Phase.FORWARD else 10
    ahead = waiting(idle + 1, step=step, phase=Phase.OPTIMIZER if step == 11 else Phase.BACKWARD)
    behind = stuck(idle, phase=phase, step=step, busy=busy, quiet_s=quiet)
    verdict = look(seen(ahead, behind, **watched))
    assert verdict.kind is kind
    if kind is VerdictKind.HUNG:
        assert verdict.suspects == (1,)
        assert (verdict.limits["busy"], verdict.limits["quiet_s"]) == (busy, quiet)


def test_whom_the_kernel_shows_as_stopped_is_the_suspect() -> None:
    verdict = look(seen(waiting(30.0), stuck(29.0, phase=Phase.BACKWARD, os_state="T")))
    assert verdict.suspects == (1,)
    assert "stopped by a signal" in verdict.reason


def test_waiting_for_a_slow_save_of_another_rank_is_no_hang() -> None:
    assert (
        look(seen(waiting(100.0, phase=Phase.DATA), stuck(100.0, phase=Phase.SAVE))).kind
        is VerdictKind.HEALTHY
    )


def test_a_stale_beat_tells_nothing_of_the_present() -> None:
    late = replace(stuck(30.0), silent_s=4.0)
    assert look(seen(waiting(), late)).kind is VerdictKind.HEALTHY


def test_a_node_that_fell_silent_while_the_rank_stood_still_may_be_why() -> None:
    """A node that froze stops everybody: blame waits until its silence tells, or its beat is back."""
    config = small_config(monitor={"hang_floor_s": 3.0, "hang_factor": 2.0})
    standing = waiting(3.2, phase=Phase.FORWARD)
    silent = replace(node(1, worker(1, phase=Phase.BACKWARD)), silent_s=2.9)
    assert look(seen(standing, silent), config=config).kind is VerdictKind.HEALTHY
    assert look(seen(standing, replace(silent, silent_s=0.5)), config=config).suspects == (0,)


def test_eyes_that_were_shut_judge_nothing() -> None:
    assert look(seen(waiting(), stuck(), watched_s=7.0)).kind is VerdictKind.HEALTHY


def test_the_first_step_of_a_generation_has_its_own_limit() -> None:
    nodes = (waiting(18.0, step=0), stuck(18.0, step=0))
    assert look(seen(*nodes)).kind is VerdictKind.STARTING
    nodes = (waiting(21.0, step=0), stuck(21.0, step=0))
    verdict = look(seen(*nodes))
    assert verdict.kind is VerdictKind.HUNG
    assert verdict.signature == "", "a stall before the first step proves no bug"


def test_a_program_that_never_writes_its_page_is_not_called_hung() -> None:
    nodes = tuple(
        node(number, worker(number, phase=Phase.UNKNOWN, step=0, idle_s=5_000.0)) for number in (0, 1)
    )
    other = small_config(job={"command": ["./train"]})
    verdict = look(seen(*nodes), config=other)
    assert verdict.kind is VerdictKind.HEALTHY
    assert "reports no progress: only its exit is watched" in verdict.reason
    early = tuple(node(number, worker(number, phase=Phase.UNKNOWN, step=0, idle_s=5.0)) for number in (0, 1))
    assert look(seen(*early), config=other).kind is VerdictKind.STARTING
    assert look(seen(*nodes)).kind is VerdictKind.HUNG


# --- the start


def test_starting_until_every_worker_has_done_a_step() -> None:
    nodes = (node(0), node(1, worker(1, step=0)))
    verdict = look(seen(*nodes))
    assert (verdict.kind, verdict.reason) == (
        VerdictKind.STARTING,
        "1 of 2 workers have finished their first step",
    )
    assert look(seen(node(0), bare(1), watched_s=30.0)).kind is VerdictKind.STARTING
    assert look(seen(resume_step=None)).kind is VerdictKind.STARTING
    assert look(seen(node(0), node(1), resume_step=10)).kind is VerdictKind.STARTING


@pytest.mark.parametrize(
    ("nodes", "members", "running_s", "cause"),
    [
        ((), (), 21.0, Cause.LAUNCH),
        ((bare(0),), (), 21.0, Cause.LAUNCH),
        ((bare(0), bare(1)), (), 21.0, Cause.RENDEZVOUS),
        ((bare(0), node(1)), ("n0", "n1"), 41.0, Cause.LAUNCH),
    ],
)
def test_a_start_that_does_not_come_about(nodes, members, running_s: float, cause: Cause) -> None:
    observation = seen(nodes=nodes, members=members, running_s=running_s, watched_s=9_000.0)
    past = fold_of(events(*BEGUN[:3]))
    verdict = look(observation, past)
    assert (verdict.kind, verdict.cause) == (VerdictKind.HUNG, cause)
    assert not look(replace(observation, running_s=15.0), past).failed, "time in the queue is no delay"


def test_a_member_that_does_not_get_ready_is_named() -> None:
    told = control(generation=2, members=("n0", "n1"))
    nodes = (bare(0, generation=2, ready_for=2), bare(1, generation=1, ready_for=1))
    past = history(ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"))
    observation = seen(*nodes, generation=2, control=told, watched_s=21.0, resume_step=None)
    verdict = look(observation, past)
    assert (verdict.kind, verdict.cause, verdict.nodes) == (VerdictKind.HUNG, Cause.LAUNCH, ("n1",))
    assert look(replace(observation, watched_s=10.0), past).kind is VerdictKind.STARTING


@pytest.mark.parametrize(("code", "kind", "cause"), [(78, "crashed", "config"), (1, "crashed", "launch")])
def test_an_agent_that_gave_up_before_the_start(code: int, kind: str, cause: str) -> None:
    nodes = (bare(0), bare(1, done_code=code, notes=("preflight: 7 of 8 GPUs",)))
    verdict = look(seen(*nodes, members=()), fold_of(events(*BEGUN[:3])))
    assert (verdict.kind, verdict.cause) == (kind, cause)
    assert "7 of 8 GPUs" in verdict.reason


def test_a_spare_that_gave_up_does_not_matter() -> None:
    nodes = (bare(0), bare(1), bare(2, done_code=1))
    assert not look(seen(*nodes, members=(), watched_s=9.0), fold_of(events(*BEGUN[:3]))).failed


def test_a_time_limit_before_the_start_is_saved() -> None:
    nodes = (bare(0, done_code=75), bare(1, done_code=75))
    verdict = look(seen(*nodes, members=()), fold_of(events(*BEGUN[:3])))
    assert (verdict.kind, verdict.cause) == (VerdictKind.SAVED, Cause.TIME_LIMIT)


def test_a_generation_that_was_overtaken_is_not_judged_again() -> None:
    past = history(ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"))
    assert look(seen(exits=(exit_of(1, -9),)), past).kind is VerdictKind.STARTING


@pytest.mark.parametrize(
    ("nodes", "deaf_to", "suspects", "blamed"),
    [
        (2, (1,), (1, 0), ("n1", "n0")),  # either may be it
        (3, (1, 2), (0,), ("n0",)),  # nobody reaches it
        (3, (2,), (2,), ("n2",)),  # the other one did
        (3, (0, 1), (0,), ("n0",)),  # not even its own node reaches it
    ],
)
def test_whose_fault_it_is_that_rank_0_is_not_reached(nodes, deaf_to, suspects, blamed) -> None:
    names = tuple(f"n{number}" for number in range(nodes))
    said = "rank {} cannot reach rank 0 at 10.0.0.0:4000 (the master) within 3 s"
    exits = tuple(
        exit_of(rank, 1, exception_type="RendezvousError", exception_text=said.format(rank))
        for rank in deaf_to
    )

    def verdict(age_s: float) -> Verdict:
        ended = {rank: worker(rank, exit_code=1, exit_age_s=age_s) for rank in deaf_to}
        there = tuple(node(number, ended.get(number, worker(number))) for number in range(nodes))
        return look(seen(*there, members=names, exits=exits), config=small_config(job={"nodes": nodes}))

    assert verdict(0.1).kind is not VerdictKind.CRASHED, "the others' words are due in a moment"
    found = verdict(6.0)
    assert (found.cause, found.suspects, found.nodes) == (Cause.RENDEZVOUS, suspects, blamed)


def test_a_new_supervisor_looks_a_moment_before_it_believes_a_victim() -> None:
    """To eyes that have just opened a dead node's beat looks as good as any: it may be what the victim died of."""
    said = {"exception_type": "RuntimeError", "exception_text": "Connection closed by peer"}
    victim = seen(
        node(0, worker(0, exit_code=1, exit_age_s=30.0)),
        node(1, silent_s=0.0),
        exits=(exit_of(0, 1, **said),),
    )
    assert look(replace(victim, watched_s=0.5)).kind is not VerdictKind.CRASHED
    assert look(replace(victim, watched_s=9.0)).kind is VerdictKind.CRASHED


@pytest.mark.parametrize(
    ("left", "ended_s", "asked_s", "crashed"),
    [
        ((0, 1), 9.0, 2.0, False),  # the job is about to end: preempted, cancelled, or what?
        ((0, 1), 70.0, 2.0, True),  # it does not
        ((1,), 2.0, 9.0, False),  # the queue has not been asked since
        ((1,), 9.0, 2.0, True),  # it has, and says that the job runs
        ((1,), 70.0, 90.0, True),  # it is silent
        ((), 0.3, 9.0, False),  # the agents may have got it too
        ((), 3.0, 9.0, True),  # they did not: somebody killed this rank
    ],
)
def test_a_job_that_is_told_to_end_is_no_crash_of_its_workers(left, ended_s, asked_s, crashed) -> None:
    """Preemption and `scancel` send SIGTERM to agents and workers alike, seconds before the queue is asked again."""
    said = [{"done_code": 143, "phase": AgentPhase.LEAVING} if number in left else {} for number in (0, 1)]
    ended = worker(1, exit_code=-15, exit_age_s=ended_s)
    there = (node(0, **said[0]), node(1, ended, silent_s=0.0, **said[1]))
    found = look(seen(*there, job=job(JobState.RUNNING, age_s=asked_s), exits=(exit_of(1, -15),)))
    assert (found.kind is VerdictKind.CRASHED) is crashed
    preempted = seen(*there, job=job(JobState.ENDED_PREEMPTED), exits=(exit_of(1, -15),))
    assert look(preempted).cause is Cause.PREEMPTED
    words = ("slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",)
    victim = exit_of(0, 1, exception_type="RuntimeError", exception_text="Connection closed by peer")
    with_victim = seen(*there, job=job(JobState.RUNNING, age_s=asked_s), exits=(victim, exit_of(1, -15)))
    assert (look(with_victim).kind is VerdictKind.CRASHED) is crashed, (
        "its peer lost it, and got the signal too"
    )
    assert look(replace(with_victim, job=job(JobState.ENDED_PREEMPTED))).cause is Cause.PREEMPTED
    step = seen(*there, job=job(JobState.ENDED_FAILED), exits=(exit_of(1, -15),), job_lines=words)
    assert look(step).cause is (Cause.CANCELLED if left == (0, 1) else look(step).cause)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("*** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO JOB REQUEUE ***", Cause.PREEMPTED),
        ("*** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***", Cause.PREEMPTED),
        ("*** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", Cause.TIME_LIMIT),
        ("*** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", Cause.CANCELLED),
        ("Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("code", [-9, -15])
@pytest.mark.parametrize("left", [(), (0,), (0, 1)])
def test_who_was_killed_at_the_end_of_a_job_that_slurm_explains_is_no_crash(words, cause, code, left) -> None:
    """A requeued job may have started again and been refused while nobody watched: its state says "failed" then."""
    said = [{"done_code": 143, "phase": AgentPhase.LEAVING} if number in left else {} for number in (0, 1)]
    there = tuple(
        node(number, worker(number, exit_code=code, exit_age_s=1.0), silent_s=90.0, **said[number])
        for number in (0, 1)
    )
    lines = (f"slurmstepd-n1: error: {words}", "srun: error: n1: tasks 0-1: Exited with exit code 77")
    over = seen(
        *there,
        job=job(JobState.ENDED_FAILED),
        exits=(exit_of(0, code), exit_of(1, code)),
        job_lines=lines if words else (),
    )
    found = look(over)
    if cause is None:
        assert found.kind is VerdictKind.CRASHED or (code, left) == (-15, (0, 1))
    else:
        assert (found.kind, found.cause) == (VerdictKind.ENDED, cause)
    lost = exit_of(0, 1, exception_type="RuntimeError", exception_text="Connection closed by peer")
    with_victim = look(replace(over, exits=(lost, exit_of(1, code))))
    assert cause is None or with_victim.cause is cause, "who lost a killed peer is its echo too"
    own = look(replace(over, exits=(exit_of(0, 1, exception_text="ValueError: boo"), exit_of(1, code))))
    assert own.kind is VerdictKind.CRASHED, "what a rank says of itself is no echo"


# --- what the logs add


OOM_LINE = LogLine(entry="slurm-step-oom", text="slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.")
XID = LogLine(
    entry="xid-off-the-bus", node="n1", text="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
)
TRACE = LogLine(entry="python-exception", node="n1", rank=1, text="ValueError: boo")


def with_lines(*lines, **changes):
    return judge(seen(**changes, logs=lines), history(), CONFIG, NOW)


def test_a_kill_is_explained_by_what_kills_from_outside_and_by_nothing_else() -> None:
    killed = {"exits": (exit_of(1, -9),)}
    assert with_lines(**killed).cause is Cause.SIGNAL
    found = with_lines(OOM_LINE, **killed)
    assert (found.cause, found.entry) == (Cause.HOST_OOM, "slurm-step-oom")
    assert "Detected 1 oom_kill" in found.reason
    assert with_lines(XID, **killed).cause is Cause.GPU_HARDWARE
    assert with_lines(replace(XID, node="n0"), **killed).cause is Cause.SIGNAL, "another node's"
    assert with_lines(TRACE, **killed).cause is Cause.SIGNAL
    assert with_lines(replace(OOM_LINE, remark=True), **killed).cause is Cause.SIGNAL


def test_exit_records_outrank_log_lines() -> None:
    own = exit_of(1, 1, exception_type="ValueError", exception_text="ValueError: own words")
    found = with_lines(XID, exits=(own,))
    assert (found.cause, found.entry) == (Cause.TRACEBACK, "python-exception")


def test_an_end_without_a_record_is_named_by_its_log() -> None:
    """The agent died before it could write one; the beat tells the code only."""
    nodes = (node(0), node(1, worker(1, exit_code=1, exit_age_s=9.0)))
    assert with_lines(nodes=nodes).cause is Cause.UNEXPLAINED
    assert with_lines(TRACE, nodes=nodes).cause is Cause.TRACEBACK
    gone = {"job": JobLook(state=JobState.ENDED_FAILED, job_id="77"), "nodes": (), "members": ()}
    assert with_lines(XID, **gone, exits=(exit_of(0, 0),)).cause is Cause.GPU_HARDWARE


def test_a_hang_keeps_its_cause_and_gets_the_lines_as_context() -> None:
    warn = LogLine(entry="nccl-warn-other", node="n1", rank=1, remark=True, text="NCCL WARN socket")
    stuck = (node(0, worker(0, idle_s=500.0)), node(1, worker(1, idle_s=500.0, phase=Phase.DATA)))
    found = with_lines(warn, nodes=stuck)
    assert (found.kind, found.cause, found.lines) == (VerdictKind.HUNG, Cause.HANG, ("NCCL WARN socket",))


def test_a_healthy_run_is_healthy_whatever_its_logs_say() -> None:
    assert with_lines(XID, OOM_LINE).kind is VerdictKind.HEALTHY


def test_a_beat_that_was_not_seen_to_move_is_no_sign_of_life() -> None:
    """A supervisor that was just started finds the last beats of a job whose nodes are all dead."""
    old = tuple(replace(node(number), moved=False, silent_s=1.0) for number in (0, 1))
    verdict = look(seen(*old, watched_s=1.0, running_s=1.0))
    assert (verdict.kind, verdict.failed) == (VerdictKind.UNKNOWN, False)
    assert "no node's beat has been seen to move yet" in verdict.reason


def test_a_member_whose_beat_was_not_seen_to_move_does_not_train() -> None:
    verdict = look(seen(node(0), replace(node(1), moved=False, silent_s=4.0), watched_s=4.0, running_s=4.0))
    assert verdict.kind is VerdictKind.UNKNOWN
    assert "the beat of n1 has not been seen to move yet" in verdict.reason


def test_an_agent_that_holds_its_lock_lives_before_its_beat_was_seen_to_move() -> None:
    first = tuple(replace(node(number), moved=False, alive=True) for number in (0, 1))
    assert look(seen(*first, watched_s=0.0)).kind is VerdictKind.HEALTHY


def test_a_job_that_was_lost_as_a_whole_was_detected_as_late_as_its_beats_are_old() -> None:
    gone = tuple(node(number, silent_s=silent) for number, silent in ((0, 35.0), (1, 36.0)))
    verdict = look(seen(*gone, job=job(JobState.ENDED_NODE)))
    assert (verdict.kind, verdict.detected_s) == (VerdictKind.ENDED, 35.0)


def test_spares_count_among_the_agents_that_are_awaited() -> None:
    config = small_config(job={"spare_nodes": 1})
    nodes = tuple(bare(number) for number in range(config.job.nodes + 1))
    verdict = look(seen(*nodes, members=(), resume_step=None, watched_s=5.0, running_s=5.0), config=config)
    assert verdict.reason == f"{len(nodes)} of {len(nodes)} agents are there, no worker yet"
