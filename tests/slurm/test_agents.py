"""Real agents, real processes: generations, faults from outside, and the ways to leave."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.control import Order, read_claim
from contract.layout import parse_checkpoint_name
from contract.manifest import read_resumes
from contract.states import AgentPhase, ControlPhase, JobState, Phase
from slurm import processes
from tests.slurm.conftest import STANDIN, alive, config_of, wait_for
from tests.standin import expected_losses
from trainer.data.prepare import Recipe, prepare


def test_two_nodes_complete_without_a_supervisor(start):
    trial = start(config_of(job={"nodes": 2}))
    seen = trial.end()
    assert (seen.state, seen.exit) == (JobState.ENDED_OK, "0"), trial.log()
    assert trial.losses() == expected_losses(30)
    assert trial.members() == ("0", "1")
    exits = trial.exits()
    assert [(exits[rank].code, exits[rank].step, exits[rank].ordered) for rank in (0, 1)] == [
        (0, 30, False)
    ] * 2
    assert trial.beat("0").done_code == trial.beat("1").done_code == 0
    assert not Path(f"/dev/shm/ciuic-{os.getuid()}/{trial.run.run_id}").exists()


def test_two_ranks_on_one_node_complete(start):
    trial = start(config_of("--chatter", "2", job={"ranks_per_node": 2}))
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert trial.losses() == expected_losses(30)
    lines = trial.run.attempt(1).log("0").read_text().splitlines()
    for rank in (0, 1):
        said = [line for line in lines if f" g0001 r{rank} | step " in line]
        assert len(said) == 60
    assert "g0001 r- | " in "\n".join(lines)


def test_a_killed_worker_is_replaced_in_place(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 30}, job={"nodes": 2}))
    trial.hit(1, 7, signal.SIGKILL)
    hit_at = time.monotonic()
    wait_for(lambda: trial.beat("1").phase is AgentPhase.WAITING, what="the crash in the beat")
    seen_s = time.monotonic() - hit_at
    assert trial.exits()[1].code == -9
    trial.in_place(2, trial.members())
    trial.at_step(0, 7, generation=2)
    print(f"seen {seen_s:.3f} s, next steps {time.monotonic() - hit_at:.3f} s")
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert trial.losses() == expected_losses(30)
    assert 5 <= read_resumes(trial.run)[(1, 2)] <= trial.exits()[1].step


def test_a_stopped_worker_dies_by_order(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, job={"ranks_per_node": 2}))
    pid = trial.hit(1, 7, signal.SIGSTOP)
    wait_for(lambda: trial.worker(1).idle_s > 0.5, what="the standstill in the beat")
    trial.in_place(2, trial.members())
    assert not alive(pid)
    exits = trial.exits()
    assert [exits[rank].code for rank in (0, 1)] == [-9, -9]
    assert all(item.ordered for item in exits.values())
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert trial.losses() == expected_losses(25)


def test_a_spare_takes_the_place_of_a_lost_agent(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, job={"nodes": 2, "spare_nodes": 1}))
    trial.at_step(0, 6)
    assert trial.members() == ("0", "1")
    spare = trial.beat("2")
    assert (spare.phase, spare.workers) == (AgentPhase.READY, ())
    worker, agent = trial.worker(1).pid, trial.beat("1").pid
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: not alive(worker), what="the end of the worker with its agent")
    trial.in_place(2, ("0", "2"))
    wait_for(lambda: trial.beat("2").done_code == 0, what=trial.log())
    assert trial.losses() == expected_losses(25)
    trial.end()


def test_another_job_of_the_same_attempt_writes_nothing(start):
    trial = start(config_of("--step-time", "0.05", run={"steps": 5000}))
    trial.at_step(0, 2)
    before = sorted(trial.run.path.rglob("*"))
    environment = {
        **os.environ,
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_GLOBALID": "7",
        "SUBMITIT_LOCAL_JOB_ID": "424242",
    }
    command = [sys.executable, "-P", "-m", "slurm.agent", str(trial.run.path), "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 77
    assert "belongs to job" in done.stderr
    after = [path for path in sorted(trial.run.path.rglob("*")) if "checkpoints" not in path.parts]
    assert [path for path in after if path not in before] == []
    assert read_claim(trial.run, 1).job_id == trial.job.job_id


def test_all_save_and_leave_together(start):
    trial = start(
        config_of("--step-time", "0.03", "--save-time", "0.3", run={"steps": 500}, job={"nodes": 2})
    )
    trial.at_step(1, 7)
    trial.order(ControlPhase.SAVE)
    seen = trial.end()
    assert seen.exit == "75"
    assert {item.code for item in trial.exits().values()} == {75}
    newest = max(
        parse_checkpoint_name(path.parent.name) for path in trial.run.checkpoints.glob("*/MANIFEST.json")
    )
    assert newest[0] == trial.exits()[0].step == trial.exits()[1].step


def test_the_time_limits_signal_reaches_the_workers(start):
    trial = start(config_of("--start-time", "0.5", run={"steps": 500}, job={"nodes": 2}))
    wait_for(lambda: trial.worker(0) and trial.worker(1), what="workers")
    for node in ("0", "1"):  # to the agents, before the programs have a handler
        os.kill(trial.beat(node).pid, signal.SIGUSR1)
    assert trial.end().exit == "75", trial.log()
    assert {item.code for item in trial.exits().values()} == {75}


def test_a_terminated_agent_takes_its_workers_along(start):
    trial = start(config_of(run={"steps": 5000}))
    pid = trial.at_step(0, 2).pid
    trial.queue.cancel(trial.job, force=False)
    seen = trial.end()
    assert (seen.state, seen.exit) == (JobState.ENDED_FAILED, "143")
    assert not alive(pid)
    assert trial.exits()[0].ordered


def test_a_crash_waits_for_the_supervisor_and_leave_ends_it(start):
    trial = start(config_of("--fail-at", "4", job={"nodes": 2}))
    wait_for(lambda: trial.exits().keys() == {0, 1}, what=f"both exits\n{trial.log()}")
    first = trial.exits()[0]
    assert (first.code, first.exception_type, first.step, first.phase) == (1, "RuntimeError", 3, Phase.DATA)
    assert first.exception_text == "stand-in was told to fail at step 4"
    assert first.last_lines[-1] == "RuntimeError: stand-in was told to fail at step 4"
    assert trial.state.state is JobState.RUNNING
    trial.order(ControlPhase.LEAVE)
    assert trial.end().exit == "1"


def test_a_newer_attempt_throws_the_old_one_out(start):
    trial = start(config_of(run={"steps": 5000}))
    trial.at_step(0, 2)
    trial.order(ControlPhase.PREPARE, attempt=2)
    assert trial.end().exit == "77"


def test_the_death_of_the_warm_process_is_a_crash_of_its_workers(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, job={"ranks_per_node": 2}))
    worker = trial.at_step(0, 7)
    spawner = int(Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(spawner, signal.SIGKILL)
    wait_for(lambda: trial.exits().keys() == {0, 1}, what=f"both exits\n{trial.log()}")
    assert {item.code for item in trial.exits().values()} == {-9}
    assert not any(item.ordered for item in trial.exits().values())
    trial.in_place(2, trial.members())
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert trial.losses() == expected_losses(25)


def test_what_a_worker_leaves_behind_dies_with_it(start):
    trial = start(config_of("--child", run={"steps": 5000}))
    pid = trial.at_step(0, 2).pid
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(child), what="the end of the worker's child")


def test_a_program_that_knows_no_signal_leaves_with_75_all_the_same(start):
    trial = start(config_of("--ignore-usr1", "--start-time", "0.2", run={"steps": 5000}))
    pid = trial.at_step(0, 1).pid
    os.kill(trial.beat("0").pid, signal.SIGUSR1)
    os.kill(pid, signal.SIGUSR1)  # as Slurm does, to every process of the step
    assert trial.end().exit == "75"
    assert trial.exits()[0].code == -signal.SIGUSR1


@pytest.mark.slow
def test_agents_without_a_supervisor_give_up_after_a_failure(start):
    trial = start(config_of("--fail-at", "2", job={"nodes": 2}, supervisor={"orphan_s": 10.0}))
    wait_for(lambda: trial.exits().keys() == {0, 1}, what="both exits")
    assert trial.state.state is JobState.RUNNING
    assert trial.end().exit == "1"
    assert "no supervisor has moved" in trial.log()


def test_orders_and_hot_changes_reach_rank_0_once(start):
    trial = start(config_of("--step-time", "0.03", run={"steps": 25}, checkpoint={"interval_steps": 1000}))
    trial.at_step(0, 3)
    trial.order(ControlPhase.PREPARE, orders=(Order(id="o1", kind="checkpoint"),), hot={"optimizer.lr": 0.5})
    wait_for(lambda: trial.beat("0").orders_done == ("o1",), what="the order in the beat")
    wait_for(
        lambda: list(trial.run.checkpoints.glob("*/MANIFEST.json")), what=f"the checkpoint\n{trial.log()}"
    )
    trial.end()
    assert (
        len(list(trial.run.checkpoints.glob("*/MANIFEST.json"))) == 2
    )  # the one ordered, and the last step's


FORKED = """
import runpy, sys
sys.path.insert(0, {tests!r})
sys.argv = ["standin"]
import standin
def main():
    sys.argv = ["standin", "--step-time", "0.03"]
    return standin.main()
"""


def test_workers_are_forked_from_the_warm_process_with_the_socket(start, tmp_path, monkeypatch):
    fake = tmp_path / "path" / "trainer"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "preload.py").write_text("import json\nloaded = True\n")
    (fake / "main.py").write_text(FORKED.format(tests=str(STANDIN.parent)))
    monkeypatch.setenv("PYTHONPATH", str(fake.parent))
    (tmp_path / "data").mkdir()
    trial = start(without_data_check(tmp_path))
    worker = trial.at_step(1, 3)
    assert "slurm.agent.spawner" in Path(f"/proc/{worker.pid}/cmdline").read_text()
    trial.hit(0, 7, signal.SIGKILL)
    wait_for(lambda: 0 in trial.exits(), what="the exit")
    trial.in_place(2, trial.members())
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert trial.losses() == expected_losses(30)


def without_data_check(tmp_path):
    """The trainer's own configuration, which would look for prepared data."""
    config = config_of(job={"ranks_per_node": 2})
    return config.model_copy(update={"job": config.job.model_copy(update={"command": []})})


def test_our_packages_are_imported_wherever_we_stand(start, tmp_path, monkeypatch):
    """A training repository with its own `slurm/` beside the run, or as its working directory, is not run."""

    def plant(place: Path) -> None:
        for name in ("slurm", "contract", "submitit", "trainer"):
            (place / name).mkdir()
            (place / name / "__init__.py").write_text("raise SystemExit('this is the foreign package')\n")

    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    trial = start(config_of("--step-time", "0.01"), before=lambda run: plant(run.path))
    assert trial.end().state is JobState.ENDED_OK, trial.log()
    assert "foreign" not in trial.log()
    assert trial.losses() == expected_losses(30)
    assert processes.find(trial.run, 1) == []


def test_the_data_are_staged_once_for_all_on_one_disk(start, tmp_path):
    """Both agents are on this machine: one copy of each shard, both say that it is there, training does not wait."""
    texts, data, stage = tmp_path / "texts", tmp_path / "data", tmp_path / "nvme"
    texts.mkdir()
    stage.mkdir()
    for name in "abc":
        (texts / f"{name}.txt").write_text(f"{name} text\n" * 2000)
    prepare([texts], data, Recipe(vocab_size=0, validation_share=0.3, shard_tokens=5000))
    shards = sorted(path.name for path in data.glob("*.bin"))
    config = config_of(
        "--step-time", "0.05", run={"steps": 2000}, job={"nodes": 2}, data={"path": str(data)},
        node={"stage": str(stage)},
    )  # fmt: skip
    trial = start(config)
    pids = [trial.at_step(rank, 1).pid for rank in (0, 1)]
    for node in ("0", "1"):
        wait_for(
            lambda node=node: trial.beat(node).health.get("stage", {}).get("shards") == len(shards),
            what=f"the whole data set on node {node}\n{trial.log()}",
        )
    assert sorted(path.name for path in stage.glob("*/*/*") if path.name != "users") == shards
    wait_for(
        lambda: f"staging: all {len(shards)} of {len(shards)} shards" in trial.log(),
        what=f"the word of it in the log\n{trial.log()}",
    )
    for pid in pids:
        assert f"CIUIC_STAGE={stage}" in Path(f"/proc/{pid}/environ").read_text().split("\0")


def _spoiled(node):
    """Makes this node's probe of the run directory fail."""
    return lambda run: (run.attempt(1).path / f".preflight-{node}").mkdir(parents=True)


def test_a_node_that_is_not_fit_leaves_and_the_spare_takes_its_place(start):
    """Here it is agent 0, whose task it would be to start the generation."""
    trial = start(config_of(run={"steps": 15}, job={"nodes": 2, "spare_nodes": 1}), before=_spoiled("0"))
    trial.at_step(1, 5)
    assert trial.members() == ("1", "2")
    assert trial.beat("0").done_code == 1
    assert "not fit: the run directory cannot be used" in trial.beat("0").notes[-1]
    trial.end()
    assert trial.losses() == expected_losses(15)
    assert {item.code for item in trial.exits().values()} == {0}


def test_without_a_spare_the_node_that_is_not_fit_is_named(start):
    trial = start(config_of(job={"nodes": 2}), before=_spoiled("1"))
    wait_for(lambda: trial.beat("1") and trial.beat("1").done_code == 1, what=f"its leave\n{trial.log()}")
    assert "not fit" in trial.beat("1").notes[-1]
    assert trial.worker(0) is None
