"""Faults, each a function: hurt the run, and see that the right thing is found and done. Tests and benchmark use them.

Each returns the verdict and the recovery, as the journal has them. The run has two nodes (a rank each) and a spare.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from contract import events as ev
from contract.layout import RunDir
from contract.states import Cause, VerdictKind
from tests.cluster.conftest import (
    Field,
    beats,
    bodies,
    history,
    hit,
    job_id,
    members,
    newest,
    pid_of,
    wait_for,
)

Outcome = tuple[ev.Judged, ev.Recovered]
Fault = Callable[[Field, RunDir], Outcome]


def rank_killed(field: Field, run: RunDir) -> Outcome:
    at, node = newest(run), members(run)[1]
    hit(run, 1)
    verdict, back = field.recovered(run, at)
    assert (verdict.verdict, verdict.cause, verdict.nodes[0]) == (VerdictKind.CRASHED, Cause.SIGNAL, node)
    assert verdict.suspects[0] == 1
    assert back.attempt == verdict.attempt, "a new generation in place was enough"
    return verdict, back


def rank_stopped(field: Field, run: RunDir) -> Outcome:
    at, node = newest(run), members(run)[1]
    hit(run, 1, signal.SIGSTOP)
    verdict, back = field.recovered(run, at)
    assert (verdict.verdict, verdict.nodes[0], verdict.suspects[0]) == (VerdictKind.HUNG, node, 1)
    assert back.attempt == verdict.attempt
    return verdict, back


def agent_killed(field: Field, run: RunDir) -> Outcome:
    """The node is whole, and its agent cannot be started again inside its step: it counts as lost."""
    field.until_agents(run, 3)
    at, node = newest(run), members(run)[1]
    os.kill(agent_of(run, node), signal.SIGKILL)
    verdict, back = field.recovered(run, at)
    assert (verdict.verdict, verdict.nodes) == (VerdictKind.NODE_LOST, (node,))
    assert back.attempt == verdict.attempt, "the spare takes its place in the same job"
    assert node not in members(run)
    return verdict, back


def node_lost(field: Field, run: RunDir, node: str = "") -> Outcome:
    """A power cut. With a spare the job goes on; without, a new one starts long before Slurm gives the node up."""
    at, node = newest(run), node or members(run)[1]
    field.cluster.kill_node(node)
    verdict, back = field.recovered(run, at)
    assert (verdict.verdict, verdict.cause) == (VerdictKind.NODE_LOST, Cause.NODE_FAILURE)
    assert verdict.nodes == (node,)
    assert verdict.detected_s <= 15
    assert node not in members(run)
    return verdict, back


def node_back_soon(field: Field, run: RunDir) -> Outcome:
    """The node with the job's own script reboots: it is back, without its part of the job, before Slurm has missed it."""
    at, node = newest(run), script_node(field, run)
    field.cluster.kill_node(node)
    field.cluster.start_node(node)
    verdict, back = field.recovered(run, at, 90)
    assert verdict.cause == Cause.NODE_FAILURE, verdict
    assert verdict.nodes == (node,)
    return verdict, back


def zombie_node(field: Field, run: RunDir) -> Outcome:
    """Node daemon dead, agent and worker frozen; they wake up when another node has long taken their place."""
    at, node, rank = newest(run), members(run)[1], 1
    agent, worker = agent_of(run, node), pid_of(run, rank)
    field.cluster.kill_node(node, keep=True)
    for pid in (worker, agent):
        os.kill(pid, signal.SIGSTOP)
    verdict, back = field.recovered(run, at)
    assert (verdict.verdict, verdict.nodes) == (VerdictKind.NODE_LOST, (node,))
    assert node not in members(run)
    before = names_in(run.checkpoints)
    for pid in (worker, agent):
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not Path(f"/proc/{worker}").exists(), 20, "the zombie worker's end")
    mark = f"-a{verdict.attempt:04d}-g{verdict.generation:04d}"
    new = {name for name in names_in(run.checkpoints) - before if name.endswith(mark)}
    assert not new, "a zombie published a checkpoint"
    return verdict, back


def daemon_lost(field: Field, run: RunDir) -> Outcome:
    """Only the node daemon dies: training goes on until Slurm takes the node out of the job."""
    field.until_agents(run, 3)
    at, node = newest(run), members(run)[1]
    field.cluster.kill_node(node, keep=True)
    verdict, back = field.recovered(run, at, 90)
    assert (verdict.verdict, verdict.nodes) == (VerdictKind.NODE_LOST, (node,))
    assert "Slurm has taken it out" in verdict.reason
    assert back.attempt == verdict.attempt
    assert node not in members(run)
    return verdict, back


def time_limit(field: Field, run: RunDir) -> Outcome:
    """The signal that Slurm sends before the limit, sent by hand: every rank saves, and another job goes on."""
    at = newest(run)
    field.cluster.run("scancel", "--signal=USR1", job_id(run))
    verdict, back = field.recovered(run, at, 120)
    assert (verdict.verdict, verdict.cause) == (VerdictKind.SAVED, Cause.TIME_LIMIT)
    assert back.attempt == verdict.attempt + 1
    assert back.repeated_steps == 0, "every rank's save was complete"
    return verdict, back


def controller_stopped_in_submission(field: Field, run: RunDir, seconds: float = 60) -> Outcome:
    """The time limit comes, the next attempt is intended, and then nobody answers for a minute."""
    at = newest(run)
    field.cluster.run("scancel", "--signal=USR1", job_id(run))
    intended = field.until_event(run, ev.AttemptIntended, 60, at)
    field.cluster.stop_controller()
    until = time.monotonic() + seconds
    verdict = field.until_event(run, ev.Judged, 5, at)
    while time.monotonic() < until:
        assert not [
            event for event in bodies(run, ev.AttemptIntended) if event.attempt > intended.body.attempt
        ]
        time.sleep(0.5)
    field.cluster.start_controller()
    back = field.until_event(run, ev.Recovered, 120, at)
    assert back.body.attempt == intended.body.attempt, "the number of the attempt stays"
    return verdict.body, back.body


def prolog_failed(field: Field, run: RunDir) -> Outcome:
    """The next job's first node cannot run its prolog. Slurm cancels the job; that is not a person's wish."""
    at = newest(run)
    taken = set(field.live_jobs(run)[0].nodes)
    broken = min(taken)
    field.cluster.fail_prolog(broken)
    field.cluster.run("scancel", "--signal=USR1", job_id(run))
    verdict = field.until_event(run, ev.Judged, 60, at, cause=Cause.LAUNCH)
    back = field.until_event(run, ev.Recovered, 60, verdict.seq)
    field.cluster.fail_prolog(broken, fail=False)
    assert verdict.body.nodes == (broken,)
    assert broken in history(run).attempts[-1].exclude
    assert broken not in members(run)
    return verdict.body, back.body


def step_cancelled(field: Field, run: RunDir) -> Outcome:
    """`scancel JOB.STEP` ends the agents; it is no wish to end the run."""
    at = newest(run)
    field.cluster.run("scancel", f"{job_id(run)}.0")
    verdict, back = field.recovered(run, at)
    assert (verdict.cause, back.attempt) == (Cause.CANCELLED, verdict.attempt + 1)
    return verdict, back


def script_node(field: Field, run: RunDir) -> str:
    """Where the sbatch script and srun run."""
    return field.cluster.run("scontrol", "show", "job", job_id(run)).split("BatchHost=")[1].split()[0]


class SupervisorKiller:
    """SIGKILLs the supervisor at random moments while something else goes wrong, and starts another at once.

    CIUIC_TEST_SEED repeats the moments of a run that failed; each is printed.
    """

    def __init__(self, field: Field) -> None:
        seed = int(os.environ.get("CIUIC_TEST_SEED") or random.randrange(10_000))
        print(f"supervisors are killed by CIUIC_TEST_SEED={seed}")
        self._field, self._chance = field, random.Random(seed)
        self.kills = 0

    @contextlib.contextmanager
    def at_work(self, times: int) -> Iterator[None]:
        """So many kills, some in the first moments of the fault and some while it is being answered."""
        stop = threading.Event()
        # The first one comes within the second in which no fault is answered yet.
        pauses = [self._chance.uniform(0.1, 1.0), *(self._chance.uniform(0.1, 4.0) for _ in range(times - 1))]

        def kill() -> None:
            for pause in pauses:
                if stop.wait(pause):
                    return
                self._field.kill_supervisor()
                self._field.supervise()
                self.kills += 1
                print(f"supervisor killed {pause:.2f} s on")

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield
        finally:
            stop.set()
            killer.join()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def agent_of(run: RunDir, node: str) -> int:
    return next(beat.pid for beat in beats(run) if beat.node == node)
