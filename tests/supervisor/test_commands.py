"""pause, resume, cancel, status and explain, with and without a supervisor."""

import errno
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from contract import events as ev
from contract.beat import Beat
from contract.config import read_resolved
from contract.control import Control, read_control, write_control
from contract.journal import Journal
from contract.metrics import merged
from contract.states import AgentPhase, ControlPhase, JobState
from supervisor.adapters.act import Hands
from supervisor.book import Book
from supervisor.commands_operate import explained
from supervisor.core import actions as do
from supervisor.core.observation import JobLook, NodeSeen, Observation
from supervisor.demo.robot import Robot
from supervisor.reading import all_left
from tests.standin import expected_losses
from tests.supervisor.conftest import bare_run, config_of, wait_for
from tests.supervisor.place import Place, alive, bodies, history, wait_for_state, wait_for_step, workers
from tests.supervisor.schemas import check


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def test_pause_and_resume_with_a_supervisor(place) -> None:
    run = place.submit("--step-time", "0.05", steps=50)
    process = place.supervise("--until-done")
    wait_for_step(run, 7)
    done = place.ciuic("pause", run.run_id)
    assert done.returncode == 0, done.stderr
    wait_for_state(run, "paused")
    wait_for(lambda: not alive(run))
    assert process.wait(20) == 0  # paused is final: nothing is left to do
    sent = place.robot.texts()
    place.supervise()
    wait_for(lambda: place.log.read_text().count("supervises") == 2)
    done = place.ciuic("resume", run.run_id)
    assert done.returncode == 0, done.stderr
    wait_for_state(run, "completed")
    assert [item.attempt for item in bodies(run, ev.AttemptSubmitted)] == [1, 2]
    assert {step: row["loss"] for step, row in merged(run).items()} == expected_losses(50)
    assert not any("崩溃" in text for text in sent)


def test_pause_resume_and_cancel_without_a_supervisor(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000)
    wait_for_step(run, 7)
    done = place.ciuic("pause", run.run_id)
    assert done.returncode == 0, done.stderr
    assert history(run).state == "paused"
    assert not alive(run)
    saved = history(run).newest_checkpoint.step
    assert saved >= 7
    done = place.ciuic("resume", run.run_id)
    assert done.returncode == 0, done.stderr
    assert [item.attempt for item in bodies(run, ev.AttemptSubmitted)] == [1, 2]
    wait_for_step(run, saved + 2, attempt=2)
    done = place.ciuic("cancel", run.run_id)
    assert done.returncode == 0, done.stderr
    assert history(run).state == "cancelled"
    assert not alive(run)


@pytest.mark.parametrize("watchdog", [True, False])
def test_what_is_set_without_a_supervisor_has_reached_the_agents_when_the_command_says_so(
    place, watchdog
) -> None:
    run = place.submit("--step-time", "0.05", steps=5000, watchdog=watchdog)
    wait_for_step(run, 3)
    done = place.ciuic("set", run.run_id, "lr_factor=0.5")
    assert done.returncode == 0, done.stderr
    assert "no supervisor is running" in done.stderr
    assert "lr_factor=0.5 from the next step boundary on" in done.stdout
    assert dict(read_control(run).hot) == {"lr_factor": 0.5}


def test_resume_on_another_number_of_ranks(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000)
    wait_for_step(run, 5)
    place.supervise()
    wait_for(lambda: bodies(run, ev.SupervisorStarted), what="the supervisor")
    hot = place.ciuic("set", run.run_id, "optimizer.gradient_clipping=0.1", "log_level=debug")
    assert hot.returncode == 0, hot.stderr
    assert place.ciuic("pause", run.run_id).returncode == 0
    wrong = place.ciuic("resume", run.run_id, "--set", "job.node=1")
    assert wrong.returncode == 78
    assert 'did you mean "nodes"' in wrong.stderr
    paused = place.ciuic("set", run.run_id, "lr_factor=0.5")
    assert paused.returncode == 1
    assert "ciuic resume RUN --set" in paused.stdout
    last = history(run).newest_checkpoint.step + 20
    settings = ("--set", "job.ranks_per_node=1", "--set", f"run.steps={last}")
    settings += ("--set", "optimizer.gradient_clipping=1.0")  # what run.toml says anyway
    done = place.ciuic("resume", run.run_id, *settings)
    assert done.returncode == 0, done.stderr
    [changed] = bodies(run, ev.SettingsChanged)
    assert changed.changes == ("job.ranks_per_node: 2 → 1", f"run.steps: 5000 → {last}")
    assert history(run).target_steps == last
    assert history(run).hot == {"log_level": "debug"}, "the newest word counts"
    wait_for_state(run, "completed")
    assert {step: row["loss"] for step, row in merged(run).items()} == expected_losses(last)
    assert set(workers(run, attempt=2)) == {0}


def test_cancel_with_a_supervisor(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000)
    process = place.supervise("--until-done")
    wait_for_step(run, 3)
    assert place.ciuic("cancel", run.run_id).returncode == 0
    wait_for_state(run, "cancelled")
    assert process.wait(30) == 0
    assert not alive(run)


def test_a_run_with_the_watchdog_off_is_cancelled_when_its_owner_asks(place) -> None:
    run = place.submit("--step-time", "0.05", steps=5000, watchdog=False)
    wait_for_step(run, 3)
    done = place.ciuic("cancel", run.run_id)
    assert done.returncode == 0, done.stderr
    assert history(run).state == "cancelled"
    assert not alive(run)


def test_looking_changes_nothing(place) -> None:
    run = place.submit("--step-time", "0.02", steps=10)
    assert place.supervise("--until-done").wait(60) == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in place.root.path.rglob("*"))
    facts = check("status", place.facts(run))
    assert (facts["state"], facts["step"], facts["target_step"]) == ("completed", 10, 10)
    assert facts["newest_checkpoint"]["step"] == 10
    rows = check("runs", place.ciuic("status", "--json").stdout)["runs"]
    assert [row["run"] for row in rows] == [run.run_id]
    assert "attempts" not in rows[0]
    table = place.ciuic("status", "--lang", "zh").stdout
    assert "已完成" in table
    assert "2 个 worker 都已完成，第 10 步" in table
    _no_english(table, place.ciuic("status", run.run_id, "--lang", "zh").stdout)
    chinese = place.ciuic("explain", run.run_id, "--lang", "zh").stdout
    _no_english(chinese)
    assert "目标 10 步" in chinese
    assert "通知（提示）：" in chinese
    detail = place.ciuic("status", run.run_id[:12])
    assert "Finished" in detail.stdout
    story = place.ciuic("explain", run.run_id)
    assert story.returncode == 0
    assert "attempt 1" in story.stdout
    assert check("explain", place.ciuic("explain", run.run_id, "--json").stdout)["run"] == run.run_id
    saved = check("checkpoints", place.ciuic("checkpoints", run.run_id, "--json").stdout)["checkpoints"]
    assert [item["step"] for item in saved] == [10, 5]
    told = check("report", place.ciuic("report", run.run_id, "--json").stdout)
    assert (told["step"], told["metrics"]["rows"], len(told["checkpoints"])) == (10, 10, 2)
    assert "<svg" in place.ciuic("report", run.run_id, "-o", "-").stdout
    lines = place.ciuic("logs", run.run_id).stdout.splitlines()
    assert any("starts at step 0" in line for line in lines)
    assert len(place.ciuic("logs", run.run_id, "--tail", "2").stdout.splitlines()) == 2
    assert sorted((path, path.stat().st_mtime_ns) for path in place.root.path.rglob("*")) == before


def _no_english(*told: str) -> None:
    """No sentence of ours in it: three words in a row are one."""
    lines = [line for text in told for line in text.splitlines() if "--root" not in line]
    assert [line for line in lines if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", line)] == []


def test_an_unknown_run_names_the_nearest(place) -> None:
    bare_run(place.root, "tiny-1")
    bare_run(place.root, "tiny-2")
    for command in ("status", "explain", "logs", "checkpoints", "pause"):
        done = place.ciuic(command, "tiny-3")
        assert done.returncode == 1
        assert "nearest: tiny-" in done.stderr
    assert "下没有任务 tiny-3；相近的：tiny-" in place.ciuic("status", "tiny-3", "--lang", "zh").stderr
    assert "下没有任务 tiny-3；相近的：tiny-" in place.ciuic("report", "tiny-3", CIUIC_LANG="zh").stderr
    done = place.ciuic("status", "tiny")
    assert done.returncode == 1
    assert "tiny-1, tiny-2" in done.stderr


def test_no_runs_is_a_sentence(place) -> None:
    done = place.ciuic("status")
    assert done.returncode == 0
    assert "No runs under" in done.stdout
    assert "No supervisor" in done.stderr


@pytest.mark.parametrize(
    "command",
    [["status"], ["explain", "x"], ["cancel", "x"], ["supervise", "--once"], ["doctor"], ["report", "x"]],
    ids=lambda command: command[0],
)
def test_a_root_that_is_a_file_is_told_in_one_line(tmp_path, command) -> None:
    root = tmp_path / "runs.txt"
    root.write_text("no directory")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ciuic", *command, "--root", root],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert (
        done.stderr
        == f"{root} is no directory; --root (else CIUIC_ROOT, else ./runs) is the directory of the runs\n"
    )


def test_a_completed_run_says_that_nothing_of_it_changes(place) -> None:
    run = bare_run(place.root, "good-1")
    wrong = place.ciuic("set", run.run_id, "foo=1")
    assert wrong.returncode == 1
    assert "foo: unknown key" in wrong.stderr
    assert "--set foo" not in wrong.stderr
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.append(ev.StateChanged(state="completed", reason="x"))
    journal.close()
    for words in (("set", "lr_factor=0.5"), ("resume",), ("resume", "--set", "run.steps=90")):
        done = place.ciuic(words[0], run.run_id, *words[1:])
        assert done.returncode == 1
        said = (
            f"{words[0]}: the run is completed, and nothing of it changes any more. To train further, start a new "
            f"run from its weights: `ciuic export {run.run_id}`, then "
            "`ciuic submit CONFIG --set model.init_from=DIRECTORY` (and --set run.steps=N)"
        )
        assert done.stderr.splitlines() == [said]
    zh = place.ciuic("resume", run.run_id, "--lang", "zh", LANG="zh_CN.UTF-8").stderr
    assert f"要继续训练，请用它的权重开始新任务：先 `ciuic export {run.run_id}`" in zh


@pytest.fixture
def silent_slurm(tmp_path, monkeypatch):
    """Slurm's clients without a controller; the file holds a line for each question."""
    asked = tmp_path / "asked"
    asked.touch()
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "scontrol", "sacct", "sinfo", "scancel", "sbatch", "srun"):
        script = tmp_path / "bin" / name
        script.write_text(
            f"#!/bin/sh\necho {name} >> {asked}\necho '{name}: error: Unable to contact slurm controller' >&2\nexit 1\n"
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return asked


def slurm_run(root, run_id):
    """A run whose job 7 was handed in."""
    run = bare_run(root, run_id, config_of(job={"executor": "slurm"}))
    write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    journal = Journal(run.journal, clock=time.time, epoch=0)
    journal.append(ev.AttemptIntended(attempt=1, tag="t", reason="x"))
    journal.append(ev.AttemptSubmitted(attempt=1, job_id="7"))
    journal.close()
    return run


def test_status_asks_a_silent_slurm_once_for_all_runs_and_says_so(place, silent_slurm) -> None:
    for number in range(3):
        slurm_run(place.root, f"t-{number}")
    done = place.ciuic("status", "--json")
    assert done.returncode == 0, done.stderr
    assert len(check("runs", done.stdout)["runs"]) == 3
    assert done.stderr.splitlines() == [
        "Slurm does not answer (squeue: error: Unable to contact slurm controller): this is told from the files alone"
    ]
    assert silent_slurm.read_text().split() == ["squeue"]
    assert "以上只根据文件" in place.ciuic("explain", "t-1", "--lang", "zh").stderr


def test_cancel_says_that_it_waits_for_slurm_and_for_how_long(place, silent_slurm) -> None:
    run = slurm_run(place.root, "t-1")
    done = place.ciuic("cancel", run.run_id, "--wait", "4")
    assert done.returncode == 1
    assert "waits for Slurm, for 4 s at most (--wait)" in done.stderr
    assert "scancel" not in silent_slurm.read_text(), "nothing is ended before a complete look"
    assert "still pending when the time was up (squeue gave no answer" in done.stdout
    assert done.stdout.endswith(" The run is pending\n")


def test_what_the_queue_has_not_heard_it_is_asked_again(root) -> None:
    run, now, answers = slurm_run(root, "t-1"), [0.0], [False, False, True]
    asked: list[bool] = []

    class Deaf:
        def cancel(self, job, *, force):
            asked.append(force)
            return answers[len(asked) - 1]

    book = Book(run, clock=time.time, epoch=1, guard=lambda: None)
    said: list[str] = []
    hands = Hands(
        book=book, config=read_resolved(run.config), queue=Deaf(), clock=lambda: now[0], say=said.append
    )
    hands.carry_out(do.Cancel(attempt=1, reason="asked"))
    for now[0] in (1.0, 11.0, 12.0, 22.0, 33.0, 44.0):
        hands.again()
    assert asked == [False] * 3, "each ten seconds, until it is heard"
    assert len(said) == 2
    book.close()


def test_one_run_that_cannot_be_read_does_not_hide_the_others(place) -> None:
    good, broken = bare_run(place.root, "good-1"), bare_run(place.root, "broken-1")
    broken.config.write_text("[run")
    done = place.ciuic("status", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["run"]: row for row in check("runs", done.stdout)["runs"]}
    assert set(rows) == {good.run_id, broken.run_id}
    assert rows[broken.run_id]["state"] == "unknown"
    assert "not TOML" in rows[broken.run_id]["reason"]
    shown = place.ciuic("status")
    assert shown.returncode == 0
    assert f"--root {place.root.path}" in shown.stderr.replace("'", ""), "the hint works as it stands"


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "gbk"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_terminal_that_cannot_show_a_glyph_ends_no_command(place, variables) -> None:
    bare_run(place.root, "good-1")
    done = place.ciuic("status", **variables)
    assert done.returncode == 0, done.stderr


def test_wrong_numbers_and_wrong_files_are_told(place, tmp_path) -> None:
    run = bare_run(place.root, "good-1")
    assert place.ciuic("logs", run.run_id, "--tail", "-3").returncode == 2
    other = tmp_path / "notes.txt"
    other.write_text("no journal\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ciuic", "replay", str(other)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is not a journal" in done.stderr


# --- what is told

HUNG = ev.AlertQueued(id="f", key="failure:hang", severity="warning", title={}, text={}, receivers=())


def _with_incident(run) -> None:
    journal = Journal(run.journal, clock=time.time, epoch=0)
    for body in (HUNG, ev.StateChanged(state="failed", reason="the same failure twice")):
        journal.append(body)
    journal.close()


def _ack_and_silence(place, run) -> None:
    done = place.ciuic("ack", run.run_id)
    assert done.returncode == 0, done.stderr
    assert "acknowledged by" in done.stdout
    done = place.ciuic("silence", run.run_id, "2h")
    assert done.returncode == 0, done.stderr
    alerts = place.facts(run)["alerts"]
    assert alerts["acknowledged"]["keys"] == ["failure:hang"]
    assert 7000 < alerts["silenced"]["until"] - time.time() <= 7200
    shown = place.ciuic("status", run.run_id, "--lang", "zh").stdout
    assert "确认：解决前不再重复通知" in shown
    assert "已静默到" in shown
    assert "已静默到" in place.ciuic("status", "--lang", "zh").stdout
    assert place.ciuic("silence", run.run_id, "off").returncode == 0
    assert place.facts(run)["alerts"]["silenced"] is None
    told = [(item.request, bool(item.by)) for item in bodies(run, ev.RequestTaken)]
    assert told == [("ack", True), ("silence", True), ("silence", True)]
    assert not list(run.requests.glob("*.json"))


def test_ack_and_silence_without_a_supervisor_do_nothing_else_to_the_run(place) -> None:
    run = bare_run(place.root)
    _with_incident(run)
    before = len(bodies(run, ev.Body))
    _ack_and_silence(place, run)
    kinds = {type(body).__name__ for body in bodies(run, ev.Body)[before:]}
    assert kinds == {"RequestTaken", "RequestDone", "AlertsAcknowledged", "AlertsSilenced"}


def test_ack_and_silence_with_a_supervisor(place) -> None:
    run = bare_run(place.root)
    _with_incident(run)
    place.supervise()
    wait_for(lambda: place.log.exists() and "supervises" in place.log.read_text())
    _ack_and_silence(place, run)


def test_ack_without_an_incident_and_a_silence_of_no_length_are_refused(place) -> None:
    run = bare_run(place.root)
    done = place.ciuic("ack", run.run_id)
    assert (done.returncode, "no open incident" in done.stdout) == (1, True)
    done = place.ciuic("ack", run.run_id, "--lang", "zh")
    assert (done.returncode, done.stdout) == (1, f"{run.run_id}：当前没有待确认的故障\n")
    done = place.ciuic("silence", run.run_id, "soon")
    assert (done.returncode, "30m" in done.stderr) == (2, True)
    assert place.ciuic("silence", run.run_id, "30d").returncode == 2


def test_a_language_that_is_not_spoken_is_refused(place) -> None:
    for command in (("status",), ("explain", "x"), ("checkpoints", "x")):
        done = place.ciuic(*command, "--lang", "fr")
        assert (done.returncode, "zh or en" in done.stderr) == (2, True)
    assert place.ciuic("status", "--lang", "zh_CN.UTF-8").returncode == 0


def test_status_says_what_the_three_numbers_of_alerts_are(place) -> None:
    bare_run(place.root)
    assert "alerts sent/pending/failed" in place.ciuic("status", "--lang", "en").stdout
    assert "告警 已发/待发/失败" in place.ciuic("status", "--lang", "zh").stdout


def test_a_state_that_nobody_keeps_true_is_said_with_its_age(place) -> None:
    run = place.submit("--step-time", "0.05", steps=4000)
    assert "nobody watches this run" in place.ciuic("status", run.run_id, "--lang", "en").stdout
    place.supervise()
    wait_for(lambda: place.log.exists() and "supervises" in place.log.read_text())
    assert "nobody watches" not in place.ciuic("status", run.run_id, "--lang", "en").stdout


def test_one_look_at_a_run_whose_agents_have_left_calls_it_not_healthy() -> None:
    left = Beat(node="n1", attempt=1, generation=1, sequence=9, phase=AgentPhase.RUNNING, done_code=75)
    stays = replace(left, node="n2", done_code=None)
    job = JobLook(state=JobState.RUNNING)

    def seen(*nodes: NodeSeen) -> Observation:
        return Observation(attempt=1, generation=1, job=job, nodes=nodes)

    gone = NodeSeen(node="n1", beat=left, silent_s=0.0, alive=None)
    dead = NodeSeen(node="n2", beat=stays, silent_s=0.0, alive=False)
    assert all_left(seen(gone, dead))
    assert not all_left(seen(gone, replace(dead, alive=None)))
    assert not all_left(seen())


def test_a_wish_on_a_full_file_system_says_what_to_do(tmp_path) -> None:
    full = explained(OSError(errno.ENOSPC, "No space left on device"), tmp_path)
    assert "scancel" in full
    assert f"df -h {tmp_path}" in full
    assert explained(ValueError("no"), tmp_path) == "no"
