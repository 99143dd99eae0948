"""Answers to failures, budgets and waits, one rule a test."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.control import Order
from contract.fold import fold
from contract.history import History
from contract.requests import Request, RequestKind
from contract.states import ControlPhase, JobState, RunState, VerdictKind
from supervisor.core import actions as do
from supervisor.core import alerts
from supervisor.core.blame import suspects
from supervisor.core.budget import backoff, jittered
from supervisor.core.case import Case
from supervisor.core.causes import End, explain
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, Observation
from supervisor.core.reasons import chinese
from supervisor.core.urgent import waits_for_queue
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


def act(
    past, observation: Observation | None = None, config=CONFIG, now: float = NOW
) -> tuple[do.Action, ...]:
    observation = observation or seen()
    return decide(past, observation, judge(observation, past, config, now), config, now)


def names(actions) -> list[str]:
    return [type(action).__name__ for action in actions]


def only(actions, kind):
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def failed(*judged: ev.Judged, config=CONFIG, **changes) -> tuple[do.Action, ...]:
    """The answer to the last of these failures, of generations 1, 2, …"""
    bodies: list[ev.Body] = []
    for number, item in enumerate(judged, start=1):
        if number > 1:
            bodies.append(
                ev.GenerationIntended(attempt=1, generation=number, members=("n0", "n1"), reason="again")
            )
            bodies.append(ev.GenerationResumed(attempt=1, generation=number, step=0))
        bodies.append(replace(item, generation=number))
    number = len(judged)
    observation = seen(
        generation=number,
        control=control(generation=number, phase=ControlPhase.GO, members=("n0", "n1")),
        **changes,
    )
    return act(history(*bodies), observation, config)


def test_the_first_attempt() -> None:
    empty = Observation(attempt=0, generation=0, job=JobLook(state=JobState.GONE))
    assert only(act(fold_of(events(BEGUN[0])), empty), do.Submit).attempt == 1


def test_a_new_number_is_past_every_used_one_and_a_retried_submission_keeps_its_own() -> None:
    """A restored journal does not know what attempts/0003 was."""
    empty = Observation(attempt=0, generation=0, job=JobLook(state=JobState.GONE), used=3)
    assert only(act(fold_of(events(BEGUN[0])), empty), do.Submit).attempt == 4
    over = ev.AttemptEnded(attempt=1, job_state="ended_failed", reason="")
    assert only(act(history(failure(), over), seen(used=3)), do.Submit).attempt == 4
    assert only(act(history(failure(), over), seen(used=1)), do.Submit).attempt == 2
    assert only(act(history(over), seen(used=3)), do.Submit).attempt == 4
    again = ev.SubmitFailed(attempt=1, reason="time-out", permanent=False)
    assert only(act(fold_of(events(*BEGUN[:2], again)), seen(used=3)), do.Submit).attempt == 1


def test_an_attempt_with_a_forgotten_successor_is_over() -> None:
    later = seen(attempt=2, control=control(attempt=2), used=2)
    assert only(act(history(), later), do.CloseAttempt).attempt == 1


def test_a_lost_journal_is_no_ground_for_an_attempt() -> None:
    past = replace(fold_of([]), lost="journal.jsonl is empty")
    empty = Observation(attempt=0, generation=0, job=JobLook(state=JobState.GONE))
    assert names(act(past, empty)) == ["Wait"]


def test_in_place_tells_first_and_acts_last() -> None:
    actions = failed(failure())
    assert names(actions) == ["Tell", "SetState", "Prepare"]
    assert actions[1].state is RunState.RECOVERING
    assert (actions[2].generation, actions[2].members) == (2, ("n0", "n1"))


def test_the_label_switches_everything_off() -> None:
    config = small_config(metadata={"labels": {"ciuic.io/watchdog": "false"}})
    assert failed(failure(), config=config) == ()


def test_observe_only_tells_and_does_nothing() -> None:
    config = small_config(supervisor={"observe_only": True})
    actions = failed(failure(), config=config)
    assert names(actions) == ["Tell"]
    assert "只观察" in actions[0].alert.text["zh"]
    asked = seen(requests=(Request(id="1", kind=RequestKind.PAUSE, by="li"),))
    assert not only(act(history(), asked, config), do.Answer).ok


@pytest.mark.parametrize(
    "item",
    [
        failure(cause="config", reason="bf16 is not supported"),
        failure(verdict="refused", cause="checkpoint", reason="no valid checkpoint from step 1 on"),
    ],
)
def test_what_is_never_retried(item: ev.Judged) -> None:
    actions = failed(item)
    assert names(actions) == ["Tell", "SetState"]
    assert actions[0].alert.severity == "critical"
    assert actions[1].state is RunState.FAILED
    assert item.reason in actions[1].reason


def test_the_same_failure_at_the_same_step_stops() -> None:
    actions = failed(failure(), failure())
    assert only(actions, do.SetState).state is RunState.FAILED
    assert "2 times in a row at step 7" in only(actions, do.SetState).reason


@pytest.mark.parametrize(
    "second",
    [
        failure(step=8),
        failure(signature="traceback|ValueError|other"),
        failure(cause="signal", signature=""),
        failure(cause="comm-peer", signature=""),
    ],
)
def test_another_step_or_another_cause_is_no_proof(second: ev.Judged) -> None:
    assert RunState.FAILED not in {getattr(action, "state", None) for action in failed(failure(), second)}


def test_a_signal_from_outside_between_two_bugs_proves_nothing_against_them() -> None:
    actions = failed(failure(), failure(cause="signal", signature="", step=3), failure())
    assert only(actions, do.SetState).state is RunState.FAILED


def test_a_full_disk_stops_at_any_step() -> None:
    full = failure(cause="disk-full", signature="disk-full|OSError|#")
    assert only(failed(full, replace(full, step=9)), do.SetState).state is RunState.FAILED


def test_a_checkpoint_between_forgives() -> None:
    past = history(
        failure(),
        ev.CheckpointSeen(step=8, attempt=1, generation=1),
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"),
        ev.GenerationResumed(attempt=1, generation=2, step=8),
        failure(generation=2),
    )
    observation = seen(
        generation=2, control=control(generation=2, phase=ControlPhase.GO, members=("n0", "n1"))
    )
    assert only(act(past, observation), do.Prepare).generation == 3


def test_the_budget_of_application_failures() -> None:
    config = small_config(supervisor={"max_failures": 3, "in_place_limit": 9})
    items = [failure(step=step) for step in (1, 2, 3)]
    assert RunState.FAILED not in {
        getattr(action, "state", None) for action in failed(*items[:2], config=config)
    }
    assert "3 failures" in only(failed(*items, config=config), do.SetState).reason


def test_the_wait_of_two_runs_differs() -> None:
    """They failed together, with the storage: together they must not come back."""
    waits = {round(jittered(60.0, f"run-{number} 1 1"), 1) for number in range(20)}
    assert len(waits) > 15
    assert all(45 <= wait <= 75 for wait in waits)


@pytest.mark.parametrize(
    ("rule", "items", "stops"),
    [
        ({"gpu-oom": {"retry": "never"}}, (failure(cause="gpu-oom"),), "retry = never"),
        ({"traceback": {"retry": "always"}}, (failure(), failure()), ""),
        ({"traceback": {"budget": 2}}, (failure(step=1), failure(step=9, signature="other")), "budget = 2"),
        ({"traceback": {"budget": 2}}, (failure(step=1, cause="signal"), failure(step=9)), ""),
        ({"config": {"retry": "unless-same"}}, (failure(cause="config"),), ""),
        ({"gpu-oom": {"retry": "never"}}, (failure(),), ""),
    ],
)
def test_a_team_sets_each_rule(rule, items, stops) -> None:
    config = small_config(supervisor={"rules": rule, "in_place_limit": 9})
    states = [action for action in failed(*items, config=config) if isinstance(action, do.SetState)]
    assert (states[0].state is RunState.FAILED) is bool(stops)
    assert stops in states[0].reason


def test_a_failing_entry_that_says_no_is_proof_though_its_class_is_the_machines() -> None:
    """A device-side assert at the same step is the data's or the program's, an unspecified launch failure may be chance."""
    words = "CUDA error: device-side assert triggered"
    base = End(
        rank=0, node="n0", code=1, step=3, phase="forward", recorded=True, exception_type="RuntimeError"
    )
    assert explain(replace(base, exception_text=words)).signature
    assert not explain(replace(base, exception_text="CUDA error: unspecified launch failure")).signature


def crashes(*places: tuple[str, int], cause: str = "gpu-error", apart_s: float = 3600.0, **more) -> History:
    """A failure on each of these nodes with progress between them all."""
    bodies, at = list(BEGUN), NOW
    found = events(*bodies)
    for number, (name, step) in enumerate(places, start=1):
        at += apart_s
        found += events(
            failure(generation=number, cause=cause, nodes=(name,), step=step, signature="", **more),
            ev.GenerationIntended(attempt=1, generation=number + 1, members=("n0", "n1"), reason="x"),
            ev.CheckpointSeen(step=step + 1, attempt=1, generation=number + 1),
            at=at,
        )
    return fold(found)


def test_a_node_that_breaks_between_checkpoints_is_left_out_though_training_went_on() -> None:
    """Progress wipes out a program's failures, not a machine's; blame ends when it is too old."""
    config = small_config(job={"nodes": 60, "spare_nodes": 4})
    past = crashes(("n7", 3), ("n7", 40))
    assert not past.failures, "all are forgiven by progress"
    now = NOW + 3 * 3600
    found = suspects(past, config, now)
    assert list(found) == ["n7"]
    assert found["n7"].failures == 2
    assert not suspects(past, config, now + 25 * 3600), "exclude_hours after the last evidence"
    old = crashes(("n7", 3), ("n7", 40), apart_s=200 * 3600.0)
    assert not suspects(old, config, NOW + 401 * 3600), "the first is too old to count (blame_hours)"


@pytest.mark.parametrize(
    ("places", "changes", "why"),
    [
        ((("n7", 3),), {}, "once is chance"),
        ((("n7", 3), ("n8", 9)), {}, "two nodes, once each"),
        ((("n7", 3), ("n7", 9)), {"cause": "traceback"}, "a program's mistakes come back on one rank's node"),
        ((("n7", 3), ("n7", 9)), {"cause": "comm-peer"}, "victims"),
        ((("n7", 3), ("n7", 9)), {"cause": "hang", "entry": "nccl-watchdog-stuck"}, "victims by their entry"),
    ],
)
def test_what_is_no_evidence_against_a_node(places, changes, why) -> None:
    config = small_config(job={"nodes": 60, "spare_nodes": 4})
    assert not suspects(crashes(*places, **changes), config, NOW + 4 * 3600), why


def test_who_only_observes_says_so_when_it_would_stop() -> None:
    config = small_config(supervisor={"observe_only": True})
    (tell,) = failed(failure(cause="config"), config=config)
    assert "只观察" in tell.alert.title["zh"]
    assert "only observed" in tell.alert.title["en"]


def test_many_failures_all_over_the_cluster_accuse_nobody() -> None:
    """Sixty failures on sixty nodes: some node has two of them by chance alone."""
    places = [(f"n{number * 7 % 60}", number) for number in range(58)] + [("n3", 90), ("n3", 91)]
    config = small_config(job={"nodes": 60, "spare_nodes": 4})
    assert not suspects(crashes(*places, apart_s=600.0), config, NOW + 11 * 3600)


def test_a_message_about_the_machine_needs_no_second_one() -> None:
    config = small_config(job={"nodes": 60, "spare_nodes": 4})
    past = crashes(("n7", 3), cause="gpu-hardware", entry="xid-off-the-bus")
    assert list(suspects(past, config, NOW + 3700)) == ["n7"]


def test_infrastructure_has_a_budget_of_its_own() -> None:
    config = small_config(
        supervisor={"max_failures": 1, "max_infrastructure_failures": 2, "in_place_limit": 9}
    )
    lost = failure(verdict="node-lost", cause="node-failure", nodes=("n9",), signature="")
    assert names(failed(lost, config=config))[-1] == "Prepare"
    assert "2 infrastructure failures" in only(failed(lost, lost, config=config), do.SetState).reason


def test_the_wait_doubles_and_the_first_restart_does_not_wait() -> None:
    assert [backoff(before, 1.0, 10.0) for before in range(6)] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0]


def test_a_second_restart_waits_from_the_failure() -> None:
    past = history(
        failure(step=3),
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"),
        failure(generation=2, step=5),
    )
    observation = seen(
        generation=2, control=control(generation=2, phase=ControlPhase.GO, members=("n0", "n1"))
    )
    at = past.newest.newest.failed_at
    config = small_config(supervisor={"backoff_s": 30.0, "backoff_max_s": 30.0})
    until = only(act(past, observation, config, at + 1), do.Wait).until
    assert at + 22.5 <= until <= at + 37.5
    assert until == only(act(past, observation, config, at + 2), do.Wait).until, "no chance is drawn"
    assert only(act(past, observation, config, until), do.Prepare)
    assert only(act(past, observation, config, at - 600), do.Prepare), (
        "another clock's future is not waited for"
    )


def test_the_same_node_twice_is_left_out_when_another_stands_by() -> None:
    items = (failure(step=1), failure(step=2))
    spare = (node(0), node(1), bare(2))
    assert only(failed(*items, nodes=spare), do.Prepare).members == ("n0", "n2")
    assert only(failed(*items), do.Prepare).members == ("n0", "n1"), "blame is soft: better it than none"
    local = small_config(job={"executor": "local"})
    assert only(failed(*items, nodes=spare, config=local), do.Prepare).members == ("n0", "n1")


def test_in_place_keeps_the_order_and_takes_a_spare_for_a_lost_node() -> None:
    lost = failure(verdict="node-lost", cause="node-failure", nodes=("n0",))
    nodes = (node(0, silent_s=30.0), node(1), bare(2), bare(10))
    assert only(failed(lost, nodes=nodes), do.Prepare).members == ("n1", "n2")


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((node(0), node(1, silent_s=4.0)), "silent"),
        ((node(0), node(1, alive=False)), "dead"),
        ((node(0), node(1, done_code=1)), "leaving"),
    ],
)
def test_a_node_that_is_not_fit_is_not_asked(nodes, why: str) -> None:
    assert "Prepare" not in names(failed(failure(), nodes=nodes)), why


def test_the_limit_of_restarts_in_place() -> None:
    config = small_config(supervisor={"in_place_limit": 0})
    actions = failed(failure(), config=config)
    assert names(actions) == ["Tell", "SetState", "Cancel"]


def test_before_a_cancel_the_queue_is_asked_again() -> None:
    """A person's cancel kills the workers first: it must not be taken for a crash and be answered by a new job."""
    config = small_config(supervisor={"in_place_limit": 0})
    past = history(failure(cause="signal", signature=""))
    stale = seen(job=JobLook(state=JobState.RUNNING, job_id="77", age_s=10.0))
    at = past.newest.newest.failed_at
    assert names(act(past, stale, config, at + 2)) == ["Tell", "SetState", "Wait"]
    over = seen(job=JobLook(state=JobState.ENDED_CANCELLED, job_id="77"))
    assert names(act(past, over, config, at + 5)) == ["Tell", "SetState", "CloseAttempt"]
    assert only(act(past, over, config, at + 5), do.SetState).state is RunState.CANCELLED


def test_a_cancel_is_polite_then_forced_once_then_a_person_is_called() -> None:
    config = small_config(supervisor={"in_place_limit": 0})
    told = ev.CancelIntended(attempt=1, reason="a new attempt is needed")
    past = history(failure(), told)
    at = past.newest.cancelled_at
    assert only(act(past, None, config, at + 5), do.Wait)
    forced = act(past, None, config, at + 61)
    assert only(forced, do.Cancel).force
    alerts = [action.alert for action in forced if isinstance(action, do.Tell)]
    past = history(failure(), told, *alerts)
    assert names(act(past, None, config, at + 70)) == ["SetState", "Wait"]
    stuck = act(past, None, config, at + 1000)
    assert [action.alert.severity for action in stuck if isinstance(action, do.Tell)] == ["critical"]


def test_a_new_attempt_comes_only_after_the_old_ones_end_is_recorded() -> None:
    item = failure(verdict="ended", cause="preempted", signature="")
    over = seen(job=JobLook(state=JobState.ENDED_PREEMPTED, job_id="77"))
    actions = act(history(item), over)
    assert names(actions) == ["Tell", "SetState", "CloseAttempt", "Submit"]
    past = history(item, ev.AttemptEnded(attempt=1, job_state="ended-preempted", reason="x"))
    assert only(act(past, over), do.Submit).attempt == 2


def test_the_next_attempt_goes_without_the_lost_node_but_never_locally() -> None:
    item = failure(verdict="node-lost", cause="node-failure", nodes=("n1",))
    past = history(item, ev.AttemptEnded(attempt=1, job_state="ended-cancelled", reason="x"))
    assert only(act(past), do.Submit).exclude == ("n1",)
    local = small_config(job={"executor": "local"})
    assert only(act(past, None, local), do.Submit).exclude == ()
    assert only(act(past, now=NOW + 25 * 3600), do.Submit).exclude == (), "an exclusion expires"


def test_saved_waits_for_the_agents_to_leave() -> None:
    item = failure(verdict="saved", cause="time-limit", signature="")
    past = history(item)
    at = past.newest.newest.failed_at
    assert names(act(past, None, CONFIG, at + 100))[-1] == "Wait"
    assert names(act(past, None, CONFIG, at + 601))[-1] == "Cancel"


def test_a_prepare_that_did_not_reach_the_control_file_is_written_again_as_it_was() -> None:
    past = history(
        failure(), ev.GenerationIntended(attempt=1, generation=2, members=("n1", "n2"), reason="because")
    )
    (action,) = act(past)
    assert action == do.Prepare(attempt=1, generation=2, members=("n1", "n2"), reason="because")


def ready(*generations: int) -> Observation:
    nodes = tuple(
        bare(number, generation=2, ready_for=generation, port=4000 + number)
        for number, generation in enumerate(generations)
    )
    return seen(
        *nodes,
        generation=2,
        control=control(generation=2, members=("n1", "n0")),
        members=("n1", "n0"),
        resume_step=None,
        port=0,
        watched_s=2.0,
    )


def test_go_when_every_member_is_ready_with_the_first_members_port() -> None:
    past = history(
        failure(), ev.GenerationIntended(attempt=1, generation=2, members=("n1", "n0"), reason="x")
    )
    assert only(act(past, ready(2, 2)), do.Go) == do.Go(
        attempt=1, generation=2, members=("n1", "n0"), master="10.0.0.1", port=4001
    )
    assert "Go" not in names(act(past, ready(2, 1)))


def test_a_submission_that_failed_waits_and_keeps_its_number_and_exclusions() -> None:
    begun = (BEGUN[0], replace(BEGUN[1], exclude=("n3",)))
    past = fold_of(events(*begun, ev.SubmitFailed(attempt=1, reason="socket timed out", permanent=False)))
    empty = Observation(attempt=1, generation=1, job=JobLook(state=JobState.GONE), control=control())
    at = past.newest.submit_failed_at
    assert names(act(past, empty, now=at + 1)) == ["Wait"]
    again = only(act(past, empty, now=at + 6), do.Submit)
    assert (again.attempt, again.exclude) == (1, ("n3",))


def test_a_job_that_can_never_be_submitted_fails_the_run_and_resume_takes_a_new_number() -> None:
    bad = ev.SubmitFailed(attempt=1, reason="Invalid account", permanent=True)
    empty = Observation(attempt=1, generation=1, job=JobLook(state=JobState.GONE), control=control())
    past = fold_of(events(*BEGUN[:2], bad))
    actions = act(past, empty)
    assert names(actions) == ["Tell", "SetState"]
    assert "Invalid account" in actions[0].alert.text["zh"]
    final = ev.StateChanged(state="failed", reason="x")
    past = fold_of(events(*BEGUN[:2], bad, final))
    assert names(act(past, empty)) == ["CloseAttempt"]
    ended = ev.AttemptEnded(attempt=1, job_state="gone", reason="x")
    pending = ev.StateChanged(state="pending", reason="resumed by li")
    past = fold_of(events(*BEGUN[:2], bad, final, ended, pending))
    assert only(act(past, empty), do.Submit).attempt == 2


def test_resume_forgives_and_starts_a_new_attempt() -> None:
    bodies = (
        failure(cause="config"),
        ev.StateChanged(state="failed", reason="x"),
        ev.AttemptEnded(attempt=1, job_state="ended-failed", reason="x"),
    )
    asked = seen(
        requests=(Request(id="1", kind=RequestKind.RESUME, by="li"),),
        job=JobLook(state=JobState.ENDED_FAILED),
    )
    assert names(act(history(*bodies), asked)) == ["SetState", "Answer"]
    past = history(*bodies, ev.StateChanged(state="pending", reason="resumed by li"))
    assert names(act(past, replace(asked, requests=()))) == ["Submit"]


def test_resume_with_settings_changes_them_first_and_only_while_nothing_runs() -> None:
    asking = Request(id="1", kind=RequestKind.RESUME, by="li", args={"set": ["job.nodes=4"]})
    bodies = (
        failure(cause="config"),
        ev.StateChanged(state="failed", reason="x"),
        ev.AttemptEnded(attempt=1, job_state="ended-failed", reason="x"),
    )
    asked = seen(requests=(asking,), job=JobLook(state=JobState.ENDED_FAILED))
    assert names(act(history(*bodies), asked)) == ["Reconfigure"]
    changed = ev.SettingsChanged(
        request="1", by="li", changes=("x",), config_digest="", target_steps=9, target_tokens=0
    )
    assert names(act(history(*bodies, changed), asked)) == ["SetState", "Answer"]
    cut_off = history(*bodies, changed, ev.StateChanged(state="pending", reason="resumed by li"))
    assert only(act(cut_off, asked), do.Answer).ok
    running = act(history(), seen(requests=(asking,)))
    assert "pause it first" in only(running, do.Answer).outcome


def test_whoever_pauses_a_program_that_does_not_listen_is_told_that_nothing_was_saved() -> None:
    asking = Request(id="1", kind=RequestKind.PAUSE, by="li")
    over = seen(
        requests=(asking,), job=JobLook(state=JobState.ENDED_FAILED), control=control(phase=ControlPhase.SAVE)
    )
    deaf = replace(over, exits=(exit_of(0, -10), exit_of(1, -10)))
    told = only(act(history(), deaf), do.Answer).outcome
    assert "2 of its workers did not catch SIGUSR1 and saved nothing" in told
    assert "2 个 worker 没有处理 SIGUSR1，暂停时未保存" in chinese(told, {})
    saved = replace(over, exits=(exit_of(0, 75), exit_of(1, 75)))
    assert "SIGUSR1" not in only(act(history(), saved), do.Answer).outcome


def set_request(*words: str) -> Request:
    return Request(id="7", kind=RequestKind.SET, by="li", args={"set": list(words)})


def test_what_is_set_while_it_trains_is_journalled_before_control_json_follows() -> None:
    asked = seen(requests=(set_request("lr_factor=0.5", "checkpoint=now"),))
    passed, answer, on = act(history(), asked)
    assert (on.order, on.reason) == ("", "lr_factor=0.5"), "at once: nobody may come back"
    assert (passed.kind, passed.order) == ("checkpoint", "7")
    assert answer.events == (ev.HotSet(values={"lr_factor": 0.5}, by="li"),)
    assert answer.outcome == "lr_factor=0.5 from the next step boundary on; a checkpoint after the next step"
    killed_between = act(history(*answer.events), seen())
    assert names(killed_between) == ["PassOn"]
    refused = only(act(history(), seen(requests=(set_request("model.layers=3"),))), do.Answer)
    assert not refused.ok
    assert "ciuic resume RUN --set model.layers=VALUE" in refused.outcome


def test_a_profile_is_journalled_ordered_and_answered_when_it_is_there() -> None:
    wish = Request(id="8", kind=RequestKind.PROFILE, by="li", args={"steps": 2, "ranks": [1]})
    asked = seen(requests=(wish,))
    order = only(act(history(), asked), do.PassOn)
    assert (order.kind, order.order, order.steps, order.ranks) == ("profile", "8", 2, (1,))
    at = {"attempt": 1, "generation": 1, "order": "8"}
    intent = ev.ProfileAsked(**at, reason="asked by li", steps=2, ranks=(1,))
    assert names(act(history(intent), asked)) == ["PassOn"], "killed before control.json had it: again"
    ordered = replace(
        asked,
        control=replace(asked.control, orders=(Order(id="8", kind="profile"),)) if asked.control else None,
    )
    assert names(act(history(intent), ordered)) == [], "it waits for the workers"
    kept = ev.ProfileKept(**at, path="p/g0001", first_step=7, ranks=(1,), digest={"en": "rank 1: slow"})
    answer = only(act(history(intent, kept), ordered), do.Answer)
    assert answer.ok
    assert answer.outcome.splitlines() == ["p/g0001", "rank 1: slow"]
    elsewhere = (
        replace(ordered, control=replace(ordered.control, generation=2)) if ordered.control else ordered
    )
    assert not only(act(history(intent), elsewhere), do.Answer).ok, "the workers were started anew"


@pytest.mark.parametrize(
    ("args", "why"),
    [({"ranks": [99]}, "from 0 to"), ({"steps": 50}, "1 to 20 steps"), ({"steps": "many"}, "whole numbers")],
)
def test_a_profile_that_cannot_be_made_is_refused(args, why) -> None:
    wish = Request(id="8", kind=RequestKind.PROFILE, by="li", args=args)
    answer = only(act(history(), seen(requests=(wish,))), do.Answer)
    assert not answer.ok
    assert why in answer.outcome


def test_a_run_that_becomes_slow_is_profiled_by_itself_and_not_for_ever() -> None:
    def noticed(suspects):
        return ev.Noticed(
            attempt=1,
            generation=1,
            verdict="slow",
            cause="slow",
            reason="steps take 2 s",
            step=9,
            suspects=suspects,
            signature="",
        )

    order = only(act(history(noticed((1,))), seen()), do.PassOn)
    assert (order.kind, order.order, order.ranks) == ("profile", "slow-1", (1, 0)), "one beside it to compare"
    asked = [
        ev.ProfileAsked(order=f"slow-{number}", attempt=1, generation=1, reason="x") for number in (5, 6)
    ]
    assert not [
        item
        for item in act(history(*asked, noticed((1,))), seen())
        if isinstance(item, do.PassOn) and item.order == "slow-1"
    ], "on_slow = 2: at most two in the run's life"


def test_a_resume_that_names_a_key_drops_what_was_set_of_it_and_keeps_the_rest() -> None:
    hot = {"optimizer.gradient_clipping": 0.1, "lr_factor": 0.5}
    changed = ev.SettingsChanged(
        request="1",
        by="li",
        changes=("x",),
        config_digest="",
        target_steps=9,
        target_tokens=0,
        hot_dropped=("optimizer.gradient_clipping",),
    )
    assert history(ev.HotSet(values=hot, by="li"), changed).hot == {"lr_factor": 0.5}


def test_resume_waits_until_the_old_job_is_gone() -> None:
    past = history(failure(cause="config"), ev.StateChanged(state="failed", reason="x"))
    asked = seen(requests=(Request(id="1", kind=RequestKind.RESUME, by="li"),))
    assert names(act(past, asked)) == ["Cancel"]


def test_unknown_is_shown_then_told_and_never_acted_on() -> None:
    silent = seen(node(0, silent_s=40.0), node(1, silent_s=40.0))
    past = history()
    actions = act(past, silent)
    assert names(actions) == ["SetState", "Wait"]
    past = history(ev.StateChanged(state="unknown", reason="x"))
    later = seen(node(0, silent_s=70.0), node(1, silent_s=70.0))
    actions = act(past, later)
    assert names(actions) == ["Tell", "Wait"]
    past = history(ev.StateChanged(state="unknown", reason="x"), actions[0].alert)
    assert names(act(past, later)) == ["Wait"]
    assert names(act(past, seen())) == ["Tell", "SetState"], "the all-clear"


def test_a_short_silence_is_not_even_shown() -> None:
    assert names(act(history(), seen(node(0, silent_s=10.0), node(1, silent_s=10.0)))) == ["Wait"]


def test_a_held_job_is_told_once() -> None:
    held = seen(nodes=(), members=(), job=JobLook(state=JobState.HELD, reason="JobHeldAdmin"))
    past = fold_of(events(*BEGUN[:3]))
    (tell,) = act(past, held)
    assert "JobHeldAdmin" in tell.alert.text["zh"]
    assert act(fold_of(events(*BEGUN[:3], tell.alert)), held) == ()


def test_a_held_job_that_is_released_is_told_and_told_again_when_it_is_held_again() -> None:
    def looks(state: JobState):
        return seen(nodes=(), members=(), job=JobLook(state=state, reason="JobHeldAdmin"))

    journal = [*BEGUN[:3]]
    for _ in range(2):
        assert act(fold_of(events(*journal)), looks(JobState.PENDING)) == ()
        (held,) = act(fold_of(events(*journal)), looks(JobState.HELD))
        assert held.alert.asks, "it waits behind no news"
        journal.append(held.alert)
        assert act(fold_of(events(*journal)), looks(JobState.HELD)) == ()
        (over,) = act(fold_of(events(*journal)), looks(JobState.PENDING))
        assert over.alert.ends == held.alert.key
        assert "nothing to do" in over.alert.text["en"]
        journal.append(over.alert)


def test_of_a_job_that_asks_for_too_much_nobody_is_asked_to_release_it() -> None:
    (tell,) = act(
        fold_of(events(*BEGUN[:3])),
        seen(nodes=(), members=(), job=JobLook(state=JobState.HELD, reason="PENDING: PartitionNodeLimit")),
    )
    assert "never starts. Cancel it, or ask for fewer nodes" in tell.alert.text["en"]
    assert "请取消，或减少节点" in tell.alert.text["zh"]


def test_duplicates_are_folded_by_cause_until_recovery() -> None:
    first = only(failed(failure()), do.Tell).alert
    past = history(
        failure(),
        first,
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"),
        failure(generation=2, step=9),
    )
    observation = seen(
        generation=2, control=control(generation=2, phase=ControlPhase.GO, members=("n0", "n1"))
    )
    assert "Tell" not in names(act(past, observation))


def test_completed_is_told_and_recorded_even_while_a_pause_is_open() -> None:
    nodes = tuple(node(rank, worker(rank, step=100, exit_code=0)) for rank in (0, 1))
    done = seen(*nodes, requests=(Request(id="1", kind=RequestKind.PAUSE, by="li"),))
    assert judge(done, history(), CONFIG, NOW).kind is VerdictKind.COMPLETED
    actions = act(history(), done)
    assert names(actions) == ["Tell", "SetState"]
    assert actions[1].state is RunState.COMPLETED


def test_after_completion_the_agents_have_ten_minutes_to_leave() -> None:
    past = history(ev.StateChanged(state="completed", reason="x"))
    assert names(act(past, None, CONFIG, past.state_at + 60)) == ["Wait"]
    assert names(act(past, None, CONFIG, past.state_at + 601)) == ["Cancel"]
    over = seen(job=JobLook(state=JobState.ENDED_OK))
    assert names(act(past, over)) == ["CloseAttempt"]


def test_a_run_directory_that_cannot_be_read_leads_to_no_submission() -> None:
    blind = Observation(
        attempt=0,
        generation=0,
        job=JobLook(state=JobState.GONE),
        problems=("control.json: Input/output error",),
    )
    ended = ev.AttemptEnded(attempt=1, job_state="ended-failed", reason="x")
    for past in (fold_of(events(BEGUN[0])), fold_of(events(*BEGUN[:2])), history(failure(), ended)):
        assert set(names(act(past, blind))) <= {"SetState", "Wait"}


def test_a_queue_that_has_not_answered_yet_about_a_new_job_is_no_reason_to_say_unknown() -> None:
    new = Observation(
        attempt=1,
        generation=1,
        job=JobLook(state=JobState.UNKNOWN, reason="Slurm has not answered yet"),
        control=control(),
        watched_s=2.0,
    )
    past = fold_of(events(*BEGUN[:3]))
    assert names(act(past, new)) == ["Wait"]
    assert names(act(past, replace(new, watched_s=31.0))) == ["SetState", "Wait"]


def test_a_silent_queue_is_told_once_whatever_fails_meanwhile_and_its_answer_is_told() -> None:
    silent = JobLook(state=JobState.UNKNOWN, reason="timed out", age_s=2000.0)
    look = seen(generation=1, job=silent, control=control(generation=1, phase=ControlPhase.GO))
    past = history(ev.QueueSilent(reason="timed out", silent_s=30.0))
    told = only(act(past, look), do.Tell).alert
    recovered = ev.Recovered(
        attempt=1,
        generation=1,
        step=12,
        failed_attempt=1,
        failed_generation=1,
        detect_s=1.0,
        restart_s=1.0,
        repeated_steps=1,
    )
    later = history(ev.QueueSilent(reason="timed out", silent_s=30.0), told, recovered)
    again = [item.alert.key for item in act(later, look) if isinstance(item, do.Tell)]
    assert told.key not in again
    answered = history(ev.QueueSilent(reason="timed out", silent_s=30.0), told, recovered, ev.QueueAnswered())
    back = [item.alert for item in act(answered, seen()) if isinstance(item, do.Tell)]
    assert "The queue answers again." in {item.text["en"].splitlines()[-1] for item in back}
    quiet = history(
        ev.QueueSilent(reason="timed out", silent_s=30.0), told, recovered, ev.QueueAnswered(), *back
    )
    assert not [item for item in act(quiet, seen()) if isinstance(item, do.Tell)]
    gone = seen(job=JobLook(state=JobState.GONE, reason="not in the queue"))
    said = {item.alert.key.split(":")[0] for item in act(answered, gone) if isinstance(item, do.Tell)}
    assert "queue-back" not in said, "no word is no answer"


def test_the_queue_is_asked_soon_when_a_run_waits_for_its_word() -> None:
    def waits(past: History, look: Observation, now: float = NOW) -> bool:
        verdict = judge(look, past, CONFIG, now)
        return waits_for_queue(Case(history=past, observation=look, verdict=verdict, config=CONFIG, now=now))

    assert not waits(history(), seen())
    assert waits(history(failure()), seen(), now=9_010.0), "a failure, answered by no restart yet"
    assert not waits(history(failure()), seen(), now=9_100.0), "what it has not said for so long"
    mute = seen(*(replace(node(number), silent_s=20.0) for number in range(2)))
    assert waits(history(), mute), "all agents have fallen silent together"
    assert not waits(history(), seen(node(0), replace(node(1), silent_s=20.0))), "the beats tell enough"
    over = history(failure(), ev.AttemptEnded(attempt=1, job_state="ended-failed", reason="x"))
    assert not waits(over, seen(), now=9_010.0)


def test_a_checkpoint_that_was_passed_over_is_told_with_the_recovery() -> None:
    bodies = (
        ev.CheckpointSeen(step=8, attempt=1, generation=1),
        failure(step=9),
        ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="again"),
        ev.GenerationResumed(attempt=1, generation=2, step=4),
        ev.Recovered(
            attempt=1,
            generation=2,
            step=5,
            failed_attempt=1,
            failed_generation=1,
            detect_s=1.0,
            restart_s=1.0,
            repeated_steps=5,
        ),
    )

    def told(*more: ev.Body) -> str:
        past = history(*more)
        found = past.attempts[-1].generations[-1].recovered
        return alerts.recovered(past, found).text["en"]

    assert "The checkpoint of step 8 could not be used, the run went on from step 4" in told(*bodies)
    spiked = failure(step=9, verdict="diverged", cause="loss-spike")
    assert "could not be used" not in told(bodies[0], spiked, *bodies[2:]), "back on purpose"
    same = replace(bodies[3], step=8)
    assert "could not be used" not in told(*bodies[:3], same, bodies[4])
