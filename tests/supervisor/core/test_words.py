"""What people and programs read: alerts, recovery, status, story."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from contract import events as ev
from contract.event_lines import KINDS
from contract.fold import fold
from contract.history import History
from contract.states import Cause, JobState, Phase, RunState, VerdictKind
from supervisor.core import alerts, troubles
from supervisor.core.actions import Tell
from supervisor.core.blame import suspects
from supervisor.core.budget import Stop
from supervisor.core.causes import End, explain, normalised
from supervisor.core.curve import Curve, row_from
from supervisor.core.decide import decide
from supervisor.core.evidence import COLLECTIVE
from supervisor.core.judge import judge
from supervisor.core.observation import CheckpointLook, JobLook, Observation
from supervisor.core.phrases import CAUSES, PHASES, STATES, word
from supervisor.core.recovery import news, recovered
from supervisor.core.status import status
from supervisor.core.story import story
from supervisor.core.text import size
from supervisor.core.unpack import observation_from
from supervisor.diagnose.run import diagnose
from supervisor.record import plain
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
from tests.supervisor.core.world import World, small_config, training

CONFIG = small_config()
SAVED = CheckpointLook(step=8, attempt=1, generation=1, path="c")


def test_every_word_has_both_languages() -> None:
    assert set(CAUSES) == {cause.value for cause in Cause}
    assert set(PHASES) == {phase.word for phase in Phase} | {COLLECTIVE}
    assert set(STATES) == {state.value for state in RunState}


def test_a_failure_alert_says_who_what_and_what_is_done() -> None:
    hung = failure(
        verdict="hung",
        cause="hang",
        reason="rank 1 on n1 stands still in forward after step 7 for 9.0 s",
        limits={"phase": "forward", "idle_s": 9.0, "limit_s": 8.0},
    )
    found = alerts.failed(history(), CONFIG, hung, "in-place", SAVED, 2)
    assert found.text["zh"] == (
        "【r】rank 1：卡住\n"
        "rank 1（节点 n1）停在前向阶段，9.0 秒没有进展（上限 8.0 秒），第 7 步之后\n"
        "处理：原地重启（第 2 次启动），从第 8 步的检查点继续\n"
        "代价：发现用时 0.0 秒，约 0 步要重新训练\n"
        "最后输出：RuntimeError: bug\n"
        "您需要做：无需操作，恢复后另行通知\n"
        "位置：第 1 次提交，第 1 次启动；证据：runs/r/attempts/0001/evidence/g0001"
    )
    assert "restart in place (generation 2), from the checkpoint of step 8" in found.text["en"]
    assert found.severity == "warning"


def test_the_final_alert_has_the_last_line_a_fix_and_the_evidence() -> None:
    config = small_config(run={"root": "/shared/runs"})
    stop = alerts.Stop(en="twice", zh="两次")
    found = alerts.stopped(history(), config, failure(cause="gpu-oom"), stop)
    for text in ("RuntimeError: bug", "micro_batch_size", "/shared/runs/r/attempts/0001", "两次"):
        assert text in found.text["zh"]
    assert found.severity == "critical"


@pytest.mark.parametrize("verdict", ["hung", "crashed", "refused", "node-lost", "saved", "ended"])
@pytest.mark.parametrize("cause", ["hang", "launch", "signal"])
def test_every_failure_has_a_sentence_in_both_languages_and_fits(verdict: str, cause: str) -> None:
    item = failure(verdict=verdict, cause=cause, lines=("错" * 3000,), reason="r" * 5000)
    for found in (
        alerts.failed(history(), CONFIG, item, "attempt", None, 2),
        alerts.stopped(history(), CONFIG, item, alerts.Stop(en="x" * 3000, zh="x")),
    ):
        assert all(0 < size(text) <= 2000 for text in found.text.values())


def test_broken_supervision_is_told_once() -> None:
    found = troubles.broken(history(), "OSError: x")
    assert found is not None
    assert troubles.broken(history(found), "OSError: x") is None


def test_the_time_lost_is_told_after_recovery() -> None:
    body = ev.Recovered(
        attempt=1,
        generation=2,
        step=9,
        failed_attempt=1,
        failed_generation=1,
        detect_s=1.25,
        restart_s=3.5,
        repeated_steps=2,
    )
    text = alerts.recovered(history(), body).text["zh"]
    assert "时间损失：4.8 秒（发现 1.2 秒，重启 3.5 秒）" in text
    assert "重复训练：2 步" in text


def test_an_unexplained_end_is_told_with_its_last_lines() -> None:
    lines = tuple(f"odd line {number}" for number in range(8))
    what = failure(cause="unexplained", entry="ciuic-rank-ended", signature="", lines=lines)
    text = alerts.failed(history(), CONFIG, what, "in-place", SAVED, 2).text["zh"]
    assert "原因不明" in text
    assert "odd line 7" in text
    assert "odd line 4" in text


def test_the_advice_is_the_catalogues() -> None:
    what = failure(cause="config", entry="command-file-missing", signature="")
    text = alerts.stopped(history(), CONFIG, what, Stop(en="x", zh="x")).text
    assert "改命令里的脚本路径" in text["zh"]
    assert "correct the script's path" in text["en"]


# --- causes


def end(code: int = 1, **changes) -> End:
    base = End(rank=0, node="n0", code=code, step=3, phase="forward", recorded=True)
    return replace(base, **changes)


def test_the_signature_survives_numbers_and_addresses() -> None:
    first = explain(end(exception_type="RuntimeError", exception_text="bad value 17 at 0x7f3a11"))
    second = explain(end(exception_type="RuntimeError", exception_text="bad value 99 at 0x7f9b22"))
    other = explain(end(exception_type="RuntimeError", exception_text="worse value 99 at 0x7f9b22"))
    assert first.signature == second.signature != other.signature


def test_an_exception_that_was_only_printed_is_found() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "srun: error: n0: task 0: Exited with exit code 1",
    )
    found = explain(end(lines=lines))
    assert (found.cause, "OutOfMemoryError" in found.signature) == (Cause.GPU_OOM, True)
    assert found.what.endswith("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize("name", ["ciuic-fail", "ciuic-nofile", "ciuic-nocmd"])
def test_the_supervisor_and_diagnose_name_the_same_end(name) -> None:
    """One catalogue for both: from the exit record that the agent wrote, and from the log."""
    folder = Path(__file__).parents[2] / "data" / "logs" / name / "attempts" / "0001"
    offline = diagnose([str(folder / "logs" / "0.log")]).diagnosis
    worker = json.loads((folder / "exits" / "g0001-0.json").read_text())["workers"][0]
    live = explain(
        end(
            worker["code"],
            lines=tuple(worker["last_lines"]),
            exception_type=worker["exception_type"],
            exception_text=worker["exception_text"],
        )
    )
    assert (live.cause, live.entry) == (offline.cause, offline.entry.name)


@pytest.mark.parametrize(
    ("code", "line", "cause", "victim"),
    [
        (2, "/opt/bin/python3: can't open file '/x/train.py': [Errno 2] No such file or directory", "config", False),
        (78, "step 3: CUDA out of memory", "config", False),  # the record's code outranks what was printed
        (-9, "torch.OutOfMemoryError: CUDA out of memory", "signal", False),
        (-6, "[rank1]:[E501 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout", "comm-timeout", True),
        (1, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "unexplained", False),
        (3, "nothing that anybody knows", "unexplained", False),
        (1, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "gpu-hardware", False),
    ],
)  # fmt: skip
def test_an_end_is_named_by_the_catalogue(code, line, cause, victim) -> None:
    found = explain(end(code, lines=("step 1: loss 2.1", line)))
    assert (found.cause, found.victim) == (cause, victim)
    assert found.entry


def test_bugs_that_end_in_a_signal_can_be_deterministic() -> None:
    assert explain(end(-11)).signature
    assert not explain(end(-9)).signature


def test_normalising_keeps_words() -> None:
    assert normalised("step 12 of rank 3: deadbeef01 lost") == "step # of rank #: # lost"


# --- recovery


def later(**changes):
    nodes = changes.pop("nodes", (node(0, generation=2), node(1, generation=2)))
    return seen(nodes=nodes, generation=2, control=control(generation=2), resume_step=8, **changes)


PAST = (failure(step=9), ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"))


def test_recovered_once_every_worker_has_done_a_new_step() -> None:
    past = history(*PAST)
    found = recovered(past, later(), NOW)
    assert found is not None
    assert (found.step, found.repeated_steps, found.restart_s) == (10, 1, NOW - past.open_failure.at)
    slow = (node(0, generation=2), node(1, worker(1, step=8), generation=2))
    assert recovered(past, later(nodes=slow), NOW) is None
    assert recovered(past, later(nodes=(node(0, generation=2), bare(1, generation=2))), NOW) is None


def test_a_program_without_a_page_has_recovered_when_it_runs_on() -> None:
    """Else its second failure would be folded into the first, and nobody told."""
    past = history(failure(), ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason=""))

    def mute(idle_s: float):
        workers = [worker(rank, phase=Phase.UNKNOWN, step=0, idle_s=idle_s) for rank in (0, 1)]
        nodes = tuple(node(rank, workers[rank], generation=2) for rank in (0, 1))
        return seen(*nodes, generation=2, resume_step=None)

    assert recovered(past, mute(61.0), NOW) is not None
    assert recovered(past, mute(5.0), NOW) is None
    assert recovered(history(), later(), NOW) is None
    assert recovered(history(*PAST, failure(generation=2)), later(), NOW) is None, "it failed again at once"
    assert recovered(history(failure()), seen(), NOW) is None, "the generation that failed"


def test_a_persons_time_to_think_is_no_restart_time() -> None:
    past = history(
        failure(step=9),
        ev.AttemptEnded(attempt=1, job_state="ended-failed", reason="x"),
        ev.AttemptIntended(attempt=2, tag="t", reason="resumed by li"),
    )
    nodes = (node(0, attempt=2), node(1, attempt=2))
    found = recovered(past, seen(*nodes, attempt=2, resume_step=8), NOW)
    assert found.restart_s == NOW - past.newest.intended_at


def test_news_in_order_and_only_once() -> None:
    past = fold(events(*BEGUN[:3]))
    bodies = news(past, seen(checkpoint=SAVED))
    assert [type(body).__name__ for body in bodies] == [
        "GenerationWent",
        "GenerationResumed",
        "CheckpointSeen",
    ]
    assert news(fold(events(*BEGUN[:3], *bodies)), seen(checkpoint=SAVED)) == ()


def test_the_same_step_saved_again_is_no_progress() -> None:
    known = ev.CheckpointSeen(step=8, attempt=1, generation=1)
    assert news(history(known), seen(checkpoint=replace(SAVED, generation=2))) == ()
    assert news(history(known), seen(checkpoint=replace(SAVED, step=4))) == (), "a damaged newest is no news"
    assert news(history(known), seen(checkpoint=replace(SAVED, step=4, generation=2)))


# --- a node that is left out before it trains


def test_a_node_left_out_is_an_event_once_is_told_and_avoided() -> None:
    why = {"unfit": {"why": "compared with others: loses packets"}}
    observation = seen(node(0), node(1), bare(2, health=why, done_code=1))
    (body,) = news(history(), observation)
    assert body == ev.NodeLeftOut(attempt=1, node="n2", reason="compared with others: loses packets")
    past = history(body)
    assert news(past, observation) == ()
    assert told(past, observation) == ["left-out:1:n2"]
    assert told(fold(events(troubles.left_out(past, body), at=9_500.0), past), observation) == []
    assert "n2" in troubles.left_out(past, body).text["zh"]
    assert any("loses packets" in line for line in story(events(*BEGUN, body), "en"))
    assert list(suspects(past, small_config(job={"executor": "slurm"}), NOW)) == ["n2"]
    assert list(suspects(past, small_config(job={"executor": "slurm"}), NOW + 25 * 3600)) == []


# --- saves that fail while training goes on

FULL = "step-000000009-a0001-g0001 could not be written; rank 1: OSError: [Errno 28] No space left on device"


def test_each_change_of_the_batch_plan_is_recorded_once() -> None:
    curve = Curve()
    for step in range(1, 7):
        reason = {2: "more", 5: "fewer"}.get(step, "")
        curve.add(
            row_from({"step": step, "loss": 1.0} | ({"batch_change": reason} if reason else {}), (1, 1))
        )
    looked = seen(curve=curve.look(slow_s=60, sigma=6, least_scale=1))
    found = news(history(), looked)
    assert [(body.step, body.reason) for body in found if isinstance(body, ev.BatchChanged)] == [
        (2, "more"),
        (5, "fewer"),
    ]
    assert news(history(*found), looked) == ()
    curve.add(row_from({"step": 4, "batch_change": "done again"}, (1, 2)))
    (again,) = news(history(*found), seen(curve=curve.look(slow_s=60, sigma=6, least_scale=1)))
    assert again == ev.BatchChanged(attempt=1, generation=2, step=4, reason="done again")
    assert "step 4: done again" in story(events(again), "en")[-1]


NOT_SAVED = ev.SaveFailed(attempt=1, generation=1, step=9, cause="disk-full", reason=FULL)


def told(past: History, observation: Observation) -> list[str]:
    """Keys of what people are told."""
    verdict = judge(observation, past, CONFIG, NOW)
    return [
        action.alert.key
        for action in decide(past, observation, verdict, CONFIG, NOW)
        if isinstance(action, Tell)
    ]


def test_a_failed_save_is_an_event_with_its_cause_once() -> None:
    failing = seen(node(0, worker(0, save_error=FULL, step=9)), node(1))
    assert news(history(), failing) == (NOT_SAVED,)
    assert news(history(NOT_SAVED), failing) == ()
    later = FULL.replace("9-a", "12-a").replace(
        "[Errno 28] No space left on device", "[Errno 30] Read-only file system"
    )
    (again,) = news(history(NOT_SAVED), seen(node(0, worker(0, save_error=later)), node(1)))
    assert again.cause == "filesystem"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("OSError: [Errno 28] No space left on device: 'x'", Cause.DISK_FULL),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", Cause.DISK_FULL),
        ("OSError: [Errno 30] Read-only file system: 'x'", Cause.FILESYSTEM),
        ("FileNotFoundError: /c is not there: its file system is not mounted (any more)", Cause.FILESYSTEM),
        (
            "rank 3: the file system does not answer: writing a checkpoint has stood still for 90 s",
            Cause.FILESYSTEM,
        ),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", Cause.HOST_OOM),
        ("ValueError: something new", Cause.TRACEBACK),
    ],
)
def test_the_cause_of_a_failed_save(words: str, cause: Cause) -> None:
    (found,) = news(history(), seen(node(0, worker(0, save_error=f"rank 0: {words}")), node(1)))
    assert found.cause == cause
    alert = troubles.saves_failing(history(found), found)
    for language in ("zh", "en"):
        assert word(CAUSES, cause, language) in alert.text[language]
        assert words in alert.text[language]


def test_people_are_told_of_an_episode_of_failed_saves_and_of_its_end() -> None:
    observation = seen()
    past = history(ev.CheckpointSeen(step=6, attempt=1, generation=1), NOT_SAVED)
    (key,) = told(past, observation)
    alert = troubles.saves_failing(past, NOT_SAVED)
    assert key == alert.key
    assert "磁盘已满" in alert.text["zh"]
    assert "最近的有效检查点在第 6 步" in alert.text["zh"]
    assert "rank 1: OSError: [Errno 28]" in alert.text["en"]
    assert all(size(text) <= 2048 for text in alert.text.values())
    more = replace(NOT_SAVED, step=12, reason=FULL.replace("9-a", "12-a"))
    assert told(fold(events(alert, more, at=9_500.0), past), observation) == [], "one message an episode"
    over = fold(events(alert, ev.CheckpointSeen(step=15, attempt=1, generation=1), at=9_500.0), past)
    (clear,) = told(over, observation)
    assert troubles.saves_again(over).key == clear
    assert "15" in troubles.saves_again(over).text["zh"]
    over = fold(events(troubles.saves_again(over), at=9_600.0), over)
    assert told(over, observation) == []
    anew = fold(events(replace(NOT_SAVED, step=18, reason="other"), at=9_700.0), over)
    assert told(anew, observation), "a new episode is told again"


def test_status_and_story_tell_of_failed_saves() -> None:
    past = history(NOT_SAVED)
    assert status(past, seen(), judge(seen(), past, CONFIG, NOW), NOW)["save_problem"] == FULL
    assert "disk-full" in story(events(NOT_SAVED))[0]


# --- status


def test_status_has_the_promised_keys() -> None:
    past, observation = history(failure()), seen(checkpoint=SAVED)
    facts = status(past, observation, judge(observation, past, CONFIG, NOW), NOW)
    assert list(facts) == [
        "version",
        "run",
        "state",
        "reason",
        "step",
        "target_step",
        "attempts",
        "ranks",
        "newest_checkpoint",
        "copies",
        "hot",
        "alerts",
        "ettr",
        "journal_problems",
        "queue_problem",
        "save_problem",
    ]
    assert facts["newest_checkpoint"] == {"step": 8, "path": "c", "valid": True}
    (attempt,) = facts["attempts"]
    assert list(attempt) == ["number", "job_id", "nodes", "spares", "generations"]
    (generation,) = attempt["generations"]
    assert generation == {
        "number": 1,
        "verdict": "crashed",
        "reason": failure().reason,
        "suspects": [1],
        "phase": None,
        "first_step": 0,
        "restored_from": None,
        "last_step": 7,
    }
    assert facts["ranks"][1] == {"rank": 1, "node": "n1", "pid": 101, "phase": "forward", "step": 10}
    json.dumps(facts, allow_nan=False)


def test_status_before_the_first_attempt() -> None:
    past = fold(events(BEGUN[0]))
    observation = observation_from({"attempt": 0, "generation": 0, "job": {"state": "gone"}})
    facts = status(past, observation, judge(observation, past, CONFIG, NOW), NOW)
    assert (facts["state"], facts["step"], facts["attempts"], facts["ettr"]) == ("pending", None, [], None)


def test_ettr_counts_what_was_lost() -> None:
    world = World(config=small_config(run={"steps": 60}))
    world.until(training)
    observation, verdict = world.look()
    assert status(world.history, observation, verdict, world.wall)["ettr"] == 1.0
    world.until(lambda world: world.workers()[0].step >= 10)
    world.kill_rank(0)
    world.run()
    observation, verdict = world.look()
    facts = status(world.history, observation, verdict, world.wall)
    (fault,) = world.history.faults
    lost = fault.detect_s + fault.restart_s + fault.repeated_steps
    assert facts["ettr"] == pytest.approx(1 - lost / 65, abs=0.03)
    assert facts["state"] == "completed"


# --- story and replay


def test_a_fresh_start_is_no_resume() -> None:
    begun, gone_on = (
        ev.Event(seq=1, time=1.0, epoch=1, body=ev.GenerationResumed(attempt=1, generation=1, step=step))
        for step in (0, 7)
    )
    assert "starts at step 0" in story([begun])[0]
    assert "从第 0 步开始" in story([begun], "zh")[0]
    assert "resumed at step 7" in story([gone_on])[0]


def test_the_story_tells_every_kind_in_both_languages() -> None:
    world = World()
    world.until(training)
    world.kill_rank(1)
    world.run()
    for language, words in (("en", "was killed by SIGKILL"), ("zh", "进程被信号杀死")):
        lines = story(world.journal, language)
        assert any(words in line for line in lines)
        assert lines[0].startswith("1970-01-12 13:46:40Z  ")
    silent = {"AlertTried", "AlertDelivered"}
    kinds = {kind for kind in KINDS.values() if kind.__name__ not in silent}
    from supervisor.core import story as module

    assert set(module._TELLERS) | {ev.AlertQueued} == kinds


def _queued(**changes) -> ev.AlertQueued:
    words = {"en": "completed", "zh": "训练完成"}
    return replace(ev.AlertQueued(id="a", key="completed", severity="info", title=words, text={}), **changes)


NO_KEY = ev.AlertFailed(id="a", errcode=0, reason="alerts are not configured (set KEY)", permanent=True)


@pytest.mark.parametrize(
    ("bodies", "en", "zh"),
    [
        (
            (_queued(receivers=()),),
            "not told (info): completed; no receiver is configured for info messages",
            "未通知（提示）：训练完成；没有配置接收提示消息的接收方",
        ),
        (
            (_queued(), NO_KEY),
            "not told (info): completed; alerts are not configured (set KEY)",
            "未通知（提示）：训练完成；没有配置告警接收方（请设置 KEY）",
        ),
        ((_queued(),), "to be told (info): completed", "待通知（提示）：训练完成"),
        ((_queued(), ev.AlertTried(id="b", also=("a",))), "told (info): completed", "通知（提示）：训练完成"),
    ],
)
def test_the_story_says_once_whether_people_were_told(bodies, en, zh) -> None:
    for language, said in (("en", en), ("zh", zh)):
        [line] = story(events(*bodies), language)
        assert line.split("Z  ", 1)[1] == said


def test_an_overtaken_supervisors_event_is_not_told() -> None:
    found = [
        ev.Event(seq=1, time=1.0, epoch=2, body=ev.StateChanged(state="running", reason="new")),
        ev.Event(seq=2, time=2.0, epoch=1, body=ev.StateChanged(state="failed", reason="old")),
    ]
    assert len(story(found)) == 1


def test_an_observation_comes_back_from_the_journal_and_is_judged_the_same() -> None:
    nodes = (node(0, worker(0, exit_code=1, exit_age_s=2.0)), node(1))
    observation = seen(
        *nodes, exits=(exit_of(0, 1, exception_type="ValueError", exception_text="x"),), checkpoint=SAVED
    )
    again = observation_from(json.loads(json.dumps(plain(observation))))
    first, second = (judge(item, history(), CONFIG, NOW) for item in (observation, again))
    assert first == second
    assert first.kind is VerdictKind.CRASHED
    assert again.control == observation.control
    assert again.job == JobLook(state=JobState.RUNNING, job_id="77")
