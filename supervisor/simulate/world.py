"""The run in its world: it trains, faults strike, the real decisions answer, and the ledger takes down every second."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from contract.states import JobState, RunState
from supervisor.core import actions as do
from supervisor.core.observation import JobLook, NodeSeen, Observation
from supervisor.core.verdict import Verdict
from supervisor.simulate import looks
from supervisor.simulate.cluster import Cluster
from supervisor.simulate.detection import notice_s
from supervisor.simulate.faults import Fault, Faults, Streams
from supervisor.simulate.laws import Law
from supervisor.simulate.ledger import Ledger, Loss, segment
from supervisor.simulate.pilot import Pilot
from supervisor.simulate.scenario import HOUR_S, Kind, Scenario

_JOB_ENDS_S = 5.0  # a job that is told to end: signals, epilogue, the queue's own record
_TINY_S = 1e-6  # what sums of many floats may be off by
_TAKES_NODE = frozenset({Kind.NODE, Kind.SLOW})


@dataclass(kw_only=True)
class _Job:
    """The newest attempt's job. `ends_at` None: it runs. `lost_at`: when a node of it fell silent."""

    begun_at: float
    ends_at: float | None = None
    ends_as: JobState = JobState.ENDED_CANCELLED
    lost_at: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Counts:
    """What happened, beside the time that it took."""

    faults: Counter[str] = field(default_factory=Counter)
    in_place: int = 0
    jobs: int = 1
    time_limits: int = 0
    gave_up: int = 0
    lemon_faults: int = 0
    excluded: set[str] = field(default_factory=set)
    most_in_repair: int = 0


class World:
    """One replica. `run` once."""

    def __init__(
        self, scenario: Scenario, seed: int, replica: int = 0, *, keep_journal: bool = False
    ) -> None:
        self.scenario, self._streams = scenario, Streams(seed, replica)
        self.config = scenario.config
        self.pilot = Pilot(self.config, keep=keep_journal)
        self.faults = Faults(scenario, self._streams)
        self.cluster = Cluster(scenario.cluster, self.config.supervisor.exclude_share)
        self.ledger, self.counts = Ledger(), Counts()
        self.trained_s = 0.0
        self.now = 0.0
        self.members: tuple[str, ...] = ()
        self._over = False
        self._interval_s = scenario.interval_s(self.config)
        self._at = (0, 0)
        self._alive: dict[str, NodeSeen] = {}
        self._job = _Job(begun_at=0.0)
        self._work_s = 0.0  # work that a resume keeps
        self._resume_step = 0
        self._planned_in_s = scenario.planned_every_h * HOUR_S
        self._next: Fault | None = None  # strikes before anything was trained
        self._notice: dict[Kind, float] = {}
        self._reached = 0  # the step at which the last stretch of training ended

    def run(self) -> None:
        """From the first step to the end of the time, or of the trace."""
        self.pilot.begin(self.now)
        self.pilot.submit(do.Submit(attempt=1, reason="the first attempt"), self.now)
        nodes, _ = self.cluster.allocate(self.scenario.nodes + self.scenario.spares, (), self.now)
        self._start_job(1, nodes)
        self._trains()
        while not self._over:
            fault, self._next = self._next or self._train(), None
            if fault is not None:
                self._fail(fault)

    # --- training

    def _train(self) -> Fault | None:
        """Until something stops it; the fault if it was one. Planned stops and time limits are dealt with here."""
        wait_s = self.faults.wait(self.now, self.members)
        if wait_s is None:
            self._over = True
            return None
        limit_s = max(0.0, self._job.begun_at + self._job_limit_s() - self.now)
        planned_s = self._planned_in_s if self.scenario.planned_every_h else math.inf
        end_s = self.scenario.horizon_s - self.now
        length = min(wait_s, limit_s, planned_s, end_s)
        self._planned_in_s -= length
        fails = length == wait_s
        self._pass(length, keeps_all=not fails)
        if self._over:
            return None
        if fails:
            return self.faults.strike(self.members)
        if length == planned_s:
            self._stop_as_planned()
        elif length == limit_s:
            self._reach_limit()
        return None

    def _pass(self, length: float, *, keeps_all: bool) -> None:
        """Training of this length. Work since the last save is kept at a stop that saves, and at the end of the time."""
        part = segment(length, self._interval_s, self.scenario.checkpoint_cost, self.scenario.checkpoint_lag)
        step = self._step(part.durable_s)
        kept = part.durable_s + (part.open_s if keeps_all else 0.0)
        self._reached = self._step(part.durable_s + part.open_s)
        self.ledger.useful_s += kept
        self.ledger.lose(Loss.CHECKPOINT, part.stall_s)
        self.ledger.lose(Loss.REPEATED, part.durable_s + part.open_s - kept)
        self.now += length
        self.trained_s += length
        self._work_s += kept
        if part.durable_s:
            self.pilot.saved(self._at, step, self.now)
        self._over = self.now >= self.scenario.horizon_s - _TINY_S

    def _save(self) -> None:
        self._spend(Loss.CHECKPOINT, self.scenario.checkpoint_cost)
        self.pilot.saved(self._at, self._step(), self.now)

    def _stop_as_planned(self) -> None:
        """People save, stop, do their work, and start again."""
        self._planned_in_s = self.scenario.planned_every_h * HOUR_S
        self._save()
        self._draw(Loss.PLANNED, self.scenario.planned)
        self._resume_step = self._step()

    def _reach_limit(self) -> None:
        """The job's time limit: the workers save and leave, and a new job goes on."""
        self.counts.time_limits += 1
        self._save()
        verdict = self.pilot.judge(looks.saved(self._window(())), self.now)
        self._job.ends_at, self._job.ends_as = self.now + _JOB_ENDS_S, JobState.ENDED_FAILED
        self.pilot.fail(self._at, verdict, 0.0, self.now)
        self._recover(verdict)

    def _job_limit_s(self) -> float:
        job = self.config.job
        return job.time_limit_min * 60.0 - job.signal_before_limit_s

    # --- a fault and its answer

    def _fail(self, fault: Fault) -> None:
        """From the fault until training goes on."""
        self.counts.faults[fault.kind] += 1
        self.counts.lemon_faults += fault.nodes[0] in self.faults.lemons
        detected_s = self._detect(fault)
        calm = self._window(fault.nodes)
        verdict = self.pilot.judge(
            looks.failing(calm, fault.kind, fault.nodes, self._age(fault.kind)), self.now
        )
        assert verdict.failed, verdict
        if fault.kind in _TAKES_NODE:
            for node in fault.nodes:
                self._lose(node)
            if len(self.members) == len(fault.nodes):
                self._job.ends_at, self._job.ends_as = self.now, JobState.ENDED_NODE
        self.pilot.fail(self._at, verdict, detected_s, self.now)
        self._recover(verdict)
        if fault.kind is Kind.CRASH and not self._over and self._next is None:
            self._relapse(fault)

    def _detect(self, fault: Fault) -> float:
        """Let the time pass until the failure is known."""
        law: Law | None = getattr(self.scenario.detect, fault.kind)
        if law is None:
            late_s = self._streams["ticks"].random() * (
                self.config.monitor.beat_s + self.config.supervisor.tick_s
            )
            seconds = self._age(fault.kind) + late_s
            if fault.kind in _TAKES_NODE and len(self.members) == len(fault.nodes):
                seconds += self.scenario.node_timeout
        else:
            seconds = law.draw(self._streams["detect"])
        if fault.kind is Kind.SLOW:  # the others wait for it, and still get somewhere
            self._spend(Loss.SLOW, seconds * self.scenario.slow_share)
        else:
            self._spend(Loss.DETECTION, seconds)
        return seconds

    def _age(self, kind: Kind) -> float:
        """Age (s) at which the real judgement sees this kind of fault."""
        if kind not in self._notice:
            usual_s, alone = self.scenario.step_s, len(self.members) == 1
            self._notice[kind] = notice_s(kind, self.config, self.pilot.history, usual_s, alone=alone)
        return self._notice[kind]

    def _lose(self, node: str) -> None:
        self._alive.pop(node, None)
        self.cluster.lose(node, self.now + self.scenario.repair.draw(self._streams["repair"]))
        self._job.lost_at[node] = self.now
        self.counts.most_in_repair = max(self.counts.most_in_repair, self.cluster.in_repair(self.now))

    def _relapse(self, fault: Fault) -> None:
        """What was wrong with the node may still be wrong, if it is used again."""
        chance = self.scenario.relapse
        if chance and fault.nodes[0] in self.members and self._streams["relapse"].random() < chance:
            self._next = fault

    def _recover(self, verdict: Verdict) -> None:
        """Do what the real decisions say until the run trains again, or a fault strikes its restart."""
        while not self._over:
            before = self.now
            for action in self.pilot.decide(self._look(), verdict, self.now):
                if self._carry_out(action):
                    return
            history = self.pilot.history
            if history.state.final and history.newest is not None and history.newest.ended is not None:
                self._draw(Loss.STOPPED, self.scenario.person)
                self.pilot.resume(self.now)
            elif self.now == before:
                self._spend(self._waiting(""), self.config.supervisor.tick_s)

    def _carry_out(self, action: do.Action) -> bool:
        """True when this has brought the run back."""
        match action:
            case do.Prepare():
                self._restart(action)
                return True
            case do.Submit():
                self._submit(action)
                return True
            case do.Cancel():
                self.pilot.cancel(action, self.now)
                self._end_job()
            case do.Wait():
                self._wait(action)
            case do.TakeEvidence():
                pass  # the wait that comes with it is the time that it takes
            case do.SetState() | do.Tell() | do.CloseAttempt():
                self.counts.gave_up += isinstance(action, do.SetState) and action.state is RunState.FAILED
                self.pilot.record(action, self.now)
            case do.PassOn():  # a profile of a slow run: nobody here has time to lose by it
                pass
            case do.Go() | do.SaveAndLeave() | do.Answer() | do.SetBounds() | do.Reconfigure():
                raise AssertionError(f"nobody asked for {action}")
            case _:
                assert_never(action)
        return False

    def _restart(self, action: do.Prepare) -> None:
        """A new generation in the same job."""
        self.counts.in_place += 1
        self.pilot.prepare(action, self.now)
        self._at, self.members = (action.attempt, action.generation), action.members
        self._revive(Loss.RESTART, self.scenario.restart)

    def _submit(self, action: do.Submit) -> None:
        """A new job: it waits in the queue, and for nodes that are in repair."""
        self.counts.jobs += 1
        self.counts.excluded |= set(action.exclude)
        self.pilot.submit(action, self.now)
        self._draw(Loss.QUEUE, self.scenario.queue)
        wanted = self.scenario.nodes + self.scenario.spares
        nodes, wait_s = self.cluster.allocate(wanted, action.exclude, self.now)
        if not nodes:  # Slurm can never start it: a person has to see that the exclusion is the reason
            self.counts.gave_up += 1
            self._draw(Loss.STOPPED, self.scenario.person)
            nodes, wait_s = self.cluster.allocate(wanted, (), self.now)
        self._spend(Loss.NODES, wait_s)
        self._start_job(action.attempt, nodes)
        self._revive(Loss.START, self.scenario.start)

    def _start_job(self, attempt: int, nodes: tuple[str, ...]) -> None:
        """Its first generation takes the first nodes; the others are spares."""
        self._at, self.members = (attempt, 1), nodes[: self.scenario.nodes]
        self._alive = {node: looks.seen(node, attempt) for node in nodes}
        self._job = _Job(begun_at=self.now)

    def _revive(self, loss: Loss, law: Law) -> None:
        """Workers start and load; where faults strike restarts too, one may come before they train."""
        start_s = law.draw(self._streams["restart"])
        load_s = self.scenario.load.draw(self._streams["load"])
        fault_in_s = self.faults.wait(self.now, self.members) if self.scenario.exposed else None
        if fault_in_s is not None and fault_in_s < start_s + load_s:
            self._spend(loss, min(start_s, fault_in_s))
            self._spend(Loss.LOAD, max(0.0, fault_in_s - start_s))
            self._resume_step = self._step()
            self._reached = self._resume_step
            self._next = None if self._over else self.faults.strike(self.members)
            return
        self._spend(loss, start_s)
        self._spend(Loss.LOAD, load_s)
        self._trains()

    def _trains(self) -> None:
        """The first step is done."""
        self._resume_step = self._reached = self._step()
        self.pilot.go(self._at, self.members, self.now)
        self.pilot.resumed(self._at, self._resume_step, self.now)
        self.pilot.train(self._window(()), self.now)

    # --- the job, and time

    def _end_job(self) -> None:
        """It was cancelled. Nodes that answer nobody hold its end up until Slurm's time-out."""
        if self._job.ends_at is None:
            given_up = [at + self.scenario.node_timeout for at in self._job.lost_at.values()]
            self._job.ends_at = max([self.now + _JOB_ENDS_S, *given_up])

    def _dead(self) -> tuple[str, ...]:
        """Nodes that do not answer and that Slurm has not taken out of the job yet."""
        oldest = self.now - self.scenario.node_timeout
        return tuple(node for node, at in self._job.lost_at.items() if at > oldest)

    def _look(self) -> Observation:
        job, ends_at = self._job, self._job.ends_at
        state = JobState.RUNNING
        if ends_at is not None:
            state = JobState.ENDING if self.now < ends_at else job.ends_as
        dead = self._dead() if state is JobState.ENDING else ()
        look = JobLook(
            state=state,
            job_id=looks.JOB_ID,
            age_s=self.config.supervisor.queue_s / 2,
            nodes=dead,
            dead=dead,
        )
        return looks.whole(self._at, look, self.members, self._alive.values(), self._resume_step)

    def _window(self, hit: tuple[str, ...]) -> Observation:
        """The nodes concerned and two others, all well, after a step of this generation."""
        others: list[str] = []
        for node in self.members:
            if node not in hit:
                others.append(node)
            if len(others) == 2:
                break
        step = max(self._reached, self._resume_step + 1)
        return looks.training(self._at, (*hit, *others), step, self._resume_step, self.scenario.step_s)

    def _step(self, more_s: float = 0.0) -> int:
        """Number of the step at this much work after the last resume point."""
        return int((self._work_s + more_s) / self.scenario.step_s + 1e-9)

    def _wait(self, action: do.Wait) -> None:
        """Until the time that the decision named, or the end of the job."""
        ends_at = self._job.ends_at
        until = min(action.until, ends_at) if ends_at is not None and ends_at > self.now else action.until
        self._spend(self._waiting(action.reason), until - self.now)

    def _waiting(self, reason: str) -> Loss:
        if self.pilot.history.state.final:
            return Loss.STOPPED
        return Loss.BACKOFF if reason.startswith("backs off") else Loss.ENDING

    def _draw(self, loss: Loss, law: Law) -> None:
        self._spend(loss, law.draw(self._streams[loss]))

    def _spend(self, loss: Loss, seconds: float) -> None:
        """Let time pass for this; what lies behind the end of the simulated time does not count."""
        seconds = max(0.0, min(seconds, self.scenario.horizon_s - self.now))
        self.ledger.lose(loss, seconds)
        self.now += seconds
        self._over = self._over or self.now >= self.scenario.horizon_s - _TINY_S
