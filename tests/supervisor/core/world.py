"""A tiny world for the decisions: a queue, agents, workers, and a supervisor that may die between any two effects.

It keeps the truth that the observation only shows: whether two jobs of the run ever lived at once.
"""

from dataclasses import dataclass, field, replace
from typing import assert_never

from contract import events as ev
from contract.beat import Beat, WorkerBeat
from contract.config import RunConfig
from contract.control import Control, Order, OrderKind
from contract.event_lines import decode, encode
from contract.exits import WorkerExit
from contract.fold import apply
from contract.history import History
from contract.requests import Request, RequestKind
from contract.states import AgentPhase, ControlPhase, JobState, Phase, RunState, VerdictKind
from supervisor.core import actions as do
from supervisor.core import notices
from supervisor.core.curve import Curve, Row
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.keeping import carried_out
from supervisor.core.observation import CheckpointLook, JobLook, NodeSeen, Observation
from supervisor.core.recovery import news, recovered
from supervisor.core.verdict import Verdict
from supervisor.record import judgement

SAVE_EVERY = 4


class KilledError(Exception):
    """The supervisor died."""


def small_config(**sections) -> RunConfig:
    """A configuration whose limits are a few seconds."""
    base = {
        "run": {"name": "r", "steps": 20, "root": "runs"},
        "job": {"executor": "slurm", "nodes": 2, "spare_nodes": 0, "ranks_per_node": 1},
        "monitor": {
            "start_s": 20.0,
            "first_step_s": 20.0,
            "step_s": 20.0,
            "hang_floor_s": 5.0,
            "node_silent_s": 6.0,
            "unknown_alert_s": 60.0,
        },
        "supervisor": {"backoff_s": 1.0, "backoff_max_s": 4.0, "max_failures": 100},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return RunConfig.model_validate(base)


@dataclass
class Worker:
    rank: int
    step: int
    idle: float = 0.0
    hung: bool = False
    code: int | None = None
    ended_at: float = 0.0
    record: WorkerExit | None = None


@dataclass
class Node:
    name: str
    generation: int = 1
    alive: bool = True
    ready_for: int = 0
    sequence: int = 0
    worker: Worker | None = None
    started: int = 0  # generation whose worker was started here
    done_code: int | None = None
    late_until: float = 0.0  # so long its agent gets no turn, and its beat stands still
    lost_at: float = 0.0


@dataclass
class Job:
    attempt: int
    state: JobState = JobState.PENDING
    nodes: dict[str, Node] = field(default_factory=dict)
    ends_in: int | None = None
    ends_as: JobState = JobState.ENDED_CANCELLED


@dataclass
class World:
    config: RunConfig = field(default_factory=small_config)
    now: float = 1_000_000.0  # the monotonic clock of everybody
    skew: float = 0.0  # what somebody's wrong clock adds to it: the journal's times and the decisions'
    history: History = field(default_factory=History)
    journal: list[ev.Event] = field(default_factory=list)
    control: Control | None = None
    jobs: dict[int, Job] = field(default_factory=dict)
    go: dict[int, tuple[str, ...]] = field(default_factory=dict)
    resumes: dict[tuple[int, int], int] = field(default_factory=dict)
    checkpoint: tuple[int, int, int] | None = None
    saved: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # step → checkpoint of the lineage
    curve: Curve = field(default_factory=Curve)
    pace: float = 1.0  # seconds a step
    spent: dict[int, dict[str, float]] = field(
        default_factory=dict
    )  # rank → its time in each phase of a step
    poison: range = range(0)  # sampler positions whose data spoils the model
    positions: dict[int, int] = field(default_factory=dict)  # step → position after it
    spoiled: dict[int, bool] = field(default_factory=dict)  # step → whether the weights are spoiled after it
    exits: dict[tuple[int, int], list[WorkerExit]] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    queue_silent: bool = False
    queue_lag: int = 0  # the queue tells how things were so many seconds ago, and says that this is now
    takes_out_after: int | None = (
        None  # Slurm takes a lost node out of its job after so many seconds; None: never
    )
    refuse_submissions: int = 0
    lose_replies: int = 0  # so many submissions get in, and their answer is lost
    hide_new_jobs_s: int = 0  # so long a job that got in does not show
    usr1: bool = False
    killed_after: int | None = None
    effects: int = 0
    most_jobs: int = 0
    submitted_after_end: int = 0
    _past: list[tuple[float, dict[int, JobState]]] = field(default_factory=list)
    _born: dict[int, float] = field(default_factory=dict)  # attempt → when its job got in
    _told: dict[int, float] = field(default_factory=dict)  # attempt → when the journal learned of its job
    _missed_at: dict[int, float] = field(default_factory=dict)  # attempt → when it was looked for in vain
    _refused: set[int] = field(default_factory=set)  # the last submission was refused without a doubt
    _pulse: dict[tuple[int, str], tuple[int, float]] = field(default_factory=dict)
    _at: tuple[int, int] = (0, 0)
    _since: float = 0.0
    _running_since: float | None = None

    def __post_init__(self) -> None:
        steps = self.config.run.steps
        self.append(
            ev.RunCreated(run="r", config_digest="", version="0", target_steps=steps, target_tokens=0)
        )

    # --- the truth

    @property
    def live_jobs(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state.alive]

    def job(self) -> Job | None:
        return self.live_jobs[-1] if self.live_jobs else None

    def workers(self) -> list[Worker]:
        job = self.job()
        return [node.worker for node in job.nodes.values() if node.worker and node.alive] if job else []

    # --- the world moves

    def move(self) -> None:
        """One second."""
        self.now += 1.0
        for job in self.live_jobs:
            self._move_job(job)
        self.most_jobs = max(self.most_jobs, len(self.live_jobs))
        self._past = [*self._past, (self.now, {number: job.state for number, job in self.jobs.items()})][-60:]

    def _move_job(self, job: Job) -> None:
        if job.ends_in is not None:
            job.state = JobState.ENDING if job.state is JobState.RUNNING else job.state
            job.ends_in -= 1
            if job.ends_in <= 0:
                self._end(job, job.ends_as)
            return
        if job.state is JobState.PENDING:
            job.state = JobState.RUNNING
            total = self.config.job.nodes + self.config.job.spare_nodes
            job.nodes = {f"n{number}": Node(name=f"n{number}") for number in range(total)}
            return
        for node in job.nodes.values():
            if node.alive and node.done_code is None and self.now >= node.late_until:
                self._move_agent(job, node)
        self._train(job)
        self._leave(job)

    def _move_agent(self, job: Job, node: Node) -> None:
        node.sequence += 1
        control = self.control
        if control is None or control.attempt != job.attempt:
            if control is not None and control.attempt > job.attempt:
                node.done_code = 77
            return
        if control.generation > node.generation:
            node.generation, node.worker, node.ready_for = control.generation, None, control.generation
            return
        node.ready_for = node.ready_for or node.generation
        if control.phase is ControlPhase.LEAVE:
            node.done_code = 1
            return
        if control.phase is ControlPhase.SAVE:
            self._save(job, node)
            return
        if node.generation == 1 and control.generation == 1 and job.attempt not in self.go:
            ready = [item.name for item in job.nodes.values() if item.alive and item.ready_for]
            if len(ready) >= self.config.job.nodes:
                self.go[job.attempt] = tuple(ready[: self.config.job.nodes])
        members = self._members(job, node.generation)
        if node.name in members and node.started < node.generation:
            node.started = node.generation
            start = self.resume(job.attempt, node.generation)
            node.worker = Worker(rank=members.index(node.name), step=start)

    def resume(self, attempt: int, generation: int) -> int:
        """Where this generation resumes; recorded once."""
        if (attempt, generation) not in self.resumes:
            bound = self.history.max_step
            steps = [step for step in self.saved if bound < 0 or step <= bound]
            step = max(steps, default=0)
            self.saved = {known: found for known, found in self.saved.items() if known <= step}
            self.checkpoint = self.saved.get(step)
            self.resumes[attempt, generation] = step
        return self.resumes[attempt, generation]

    def _members(self, job: Job, generation: int) -> tuple[str, ...]:
        if generation == 1:
            return self.go.get(job.attempt, ())
        control = self.control
        started = control is not None and control.at == (job.attempt, generation)
        return control.members if control and started and control.phase is ControlPhase.GO else ()

    def _save(self, job: Job, node: Node) -> None:
        members = self._training(job)
        if node.worker is None or (
            node.worker.code is None and not node.worker.hung and self._whole(members)
        ):
            if node.worker is not None and node.worker.code is None:
                self._write_checkpoint(job, node.worker.step, node.generation)
                self._exit(job, node, 75)
            node.done_code = 75

    def _training(self, job: Job) -> list[Node]:
        newest = self.control.generation if self.control and self.control.attempt == job.attempt else 1
        return [
            node
            for node in job.nodes.values()
            if node.worker is not None and node.started == node.generation == newest
        ]

    def _whole(self, members: list[Node]) -> bool:
        return len(members) == self.config.job.nodes and all(
            node.alive and node.worker and not node.worker.hung and node.worker.code in {None, 75}
            for node in members
        )

    def _train(self, job: Job) -> None:
        members = self._training(job)
        for node in members:
            if node.worker and node.worker.code is None:
                node.worker.idle += 1.0
        if any(node.done_code is not None for node in members):
            return
        if self._whole(members):
            self._one_step(job, members)
            return
        dead = [
            node
            for node in members
            if not node.alive or (node.worker and node.worker.code not in {None, 0, 75})
        ]
        for node in members if dead else ():
            worker = node.worker
            if node.alive and worker and worker.code is None and not worker.hung and worker.idle > 2:
                self._exit(job, node, 1, "RuntimeError", "Connection closed by peer [10.0.0.1]:4242")

    def _one_step(self, job: Job, members: list[Node]) -> None:
        for node in members:
            assert node.worker
            node.worker.step += 1
            node.worker.idle = 0.0
        step, generation = members[0].worker.step, members[0].generation
        self._learn(job, generation, step)
        if self.usr1 or step % SAVE_EVERY == 0 or step >= self.config.run.steps:
            self._write_checkpoint(job, step, generation)
        over = step >= self.config.run.steps
        if over or self.usr1:
            for node in members:
                self._exit(job, node, 0 if over else 75)
                node.done_code = 0 if over else 75
            self.usr1 = False

    def _learn(self, job: Job, generation: int, step: int) -> None:
        """What the step did to the weights, and its line in the metrics."""
        start = self.positions.get(step - 1, 0)
        for window in self.history.skip_windows:
            start = window[1] if window[0] <= start < window[1] else start
        self.positions[step] = start + 4
        self.spoiled[step] = self.spoiled.get(step - 1, False) or start in self.poison
        row = Row(
            attempt=job.attempt,
            generation=generation,
            step=step,
            loss=(9.0 if self.spoiled[step] else 2.0) + 0.01 * (step % 5),
            norm=1.0 + 0.1 * (step % 3),
            seconds=self.pace + 0.01 * (step % 7),
            tokens=4096.0,
            start=start,
            end=start + 4,
        )
        self.curve.add(row)

    def _write_checkpoint(self, job: Job, step: int, generation: int) -> None:
        self.saved[step] = self.checkpoint = (step, job.attempt, generation)

    def _exit(self, job: Job, node: Node, code: int, kind: str = "", text: str = "") -> None:
        worker = node.worker
        assert worker is not None
        if worker.code is not None:
            return
        worker.code, worker.ended_at = code, self.now
        worker.record = WorkerExit(
            rank=worker.rank,
            node=node.name,
            code=code,
            ended_s=self.now,
            ordered=False,
            step=worker.step,
            phase=Phase.BACKWARD,
            exception_type=kind,
            exception_text=text,
        )
        self.exits.setdefault((job.attempt, node.generation), []).append(worker.record)

    def _leave(self, job: Job) -> None:
        members = self._training(job) or list(job.nodes.values())
        if all(node.done_code is not None or not node.alive for node in members):
            codes = {node.done_code for node in members}
            self._end(job, JobState.ENDED_OK if codes == {0} else JobState.ENDED_FAILED)

    def _end(self, job: Job, state: JobState) -> None:
        job.state = state
        for node in job.nodes.values():
            node.alive = False

    # --- faults

    def kill_rank(self, number: int) -> None:
        self._hurt(number, lambda job, node: self._exit(job, node, -9))

    def raise_in_rank(self, number: int, text: str = "bug at step 3") -> None:
        self._hurt(number, lambda job, node: self._exit(job, node, 1, "RuntimeError", text))

    def hang_rank(self, number: int) -> None:
        def hang(_job: Job, node: Node) -> None:
            assert node.worker
            node.worker.hung = True

        self._hurt(number, hang)

    def _hurt(self, number: int, what) -> None:
        job = self.job()
        nodes = [node for node in self._training(job) if node.alive] if job else []
        if nodes:
            what(job, nodes[number % len(nodes)])

    def lose_node(self, number: int) -> None:
        job = self.job()
        nodes = [node for node in job.nodes.values() if node.alive] if job else []
        if nodes:
            lost = nodes[number % len(nodes)]
            lost.alive, lost.lost_at = False, self.now

    def hold_up(self, number: int, seconds: float) -> None:
        """An agent gets no turn for so long (a busy machine); its worker goes on."""
        job = self.job()
        nodes = list(job.nodes.values()) if job else []
        if nodes:
            nodes[number % len(nodes)].late_until = self.now + seconds

    def end_job(self, state: JobState) -> None:
        job = self.job()
        if job and job.ends_in is None:
            job.ends_in, job.ends_as = 2, state

    def ask(self, kind: RequestKind) -> None:
        name = f"{int(self.now * 1000):013d}-{len(self.requests):03d}"
        self.requests[name] = Request(id=name, kind=kind, by="li")

    # --- the supervisor

    def observe(self) -> Observation:
        attempt, generation = self.control.at if self.control else (0, 0)
        if (attempt, generation) != self._at:
            self._at, self._since = (attempt, generation), self.now
        job = self.jobs.get(attempt)
        running = job is not None and job.state is JobState.RUNNING
        self._running_since = (self._running_since or self.now) if running else None
        members: tuple[str, ...] = ()
        if self.control and generation == 1:
            members = self.go.get(attempt, ()) if self.control.phase is ControlPhase.PREPARE else ()
        elif self.control:
            members = self.control.members
        nodes = tuple(self._seen(job, node) for node in job.nodes.values()) if job else ()
        checkpoint = None
        if self.checkpoint:
            step, by, start = self.checkpoint
            older = tuple(sorted(set(self.saved) - {step}, reverse=True)[:4])
            checkpoint = CheckpointLook(step=step, attempt=by, generation=start, path="c", older=older)
        return Observation(
            attempt=attempt,
            generation=generation,
            job=self._job_look(job),
            control=self.control,
            members=members,
            master="m" if members else "",
            port=1 if members else 0,
            nodes=nodes,
            exits=tuple(self.exits.get((attempt, generation), ())),
            resume_step=self.resumes.get((attempt, generation)),
            checkpoint=checkpoint,
            requests=tuple(self.requests.values()),
            usual={"backward": 0.5},
            curve=self.curve.look(
                slow_s=self.config.monitor.slow_s, sigma=self.config.monitor.spike_sigma, least_scale=1.0
            ),
            watched_s=self.now - self._since,
            running_s=self.now - self._running_since if self._running_since else 0.0,
        )

    def _job_look(self, job: Job | None) -> JobLook:
        if self.queue_silent:
            return JobLook(state=JobState.UNKNOWN, reason="squeue gave no answer", age_s=120.0)
        attempt = self.control.attempt if self.control else 0
        state = job.state if job and self._shown(job.attempt) else None
        if self.queue_lag:
            asked = self.now - self.queue_lag
            if asked <= self._told.get(attempt, 0.0):  # an answer from before does not count
                return JobLook(state=JobState.UNKNOWN, reason="Slurm has not answered yet")
            state = next((states.get(attempt) for at, states in reversed(self._past) if at <= asked), None)
        if state is None and self.now - self._told.get(attempt, -100.0) < 30.0:  # it may not show yet
            return JobLook(state=JobState.UNKNOWN, reason="not in the queue (yet)")
        if state is None:
            return JobLook(state=JobState.GONE, reason="no job with the attempt's tag")
        return JobLook(state=state, job_id=str(100 + attempt), nodes=self._left_in(job))

    def _left_in(self, job: Job | None) -> tuple[str, ...]:
        after = self.takes_out_after
        if job is None or job.state is not JobState.RUNNING or after is None:
            return ()
        return tuple(
            node.name for node in job.nodes.values() if node.alive or self.now < node.lost_at + after
        )

    def _shown(self, attempt: int) -> bool:
        return self.now - self._born.get(attempt, 0.0) >= self.hide_new_jobs_s

    def _seen(self, job: Job, node: Node) -> NodeSeen:
        key = (job.attempt, node.name)
        sequence, moved = self._pulse.get(key, (-1, self.now))
        if sequence != node.sequence:
            self._pulse[key] = (node.sequence, self.now)
            moved = self.now
        workers = () if node.worker is None else (self._worker_beat(node.worker),)
        beat = Beat(
            node=node.name,
            attempt=job.attempt,
            generation=node.generation,
            sequence=node.sequence,
            phase=AgentPhase.RUNNING,
            ready_for=node.ready_for,
            address=node.name,
            port=4000,
            done_code=node.done_code,
            workers=workers,
            orders_done=self._orders_of(job),
        )
        return NodeSeen(node=node.name, beat=beat if node.sequence else None, silent_s=self.now - moved)

    def _orders_of(self, job: Job) -> tuple[str, ...]:
        mine = self.control is not None and self.control.attempt == job.attempt
        return tuple(order.id for order in self.control.orders) if self.control and mine else ()

    def _worker_beat(self, worker: Worker) -> WorkerBeat:
        return WorkerBeat(
            rank=worker.rank,
            local_rank=0,
            pid=9,
            step=worker.step,
            phase=Phase.FORWARD if worker.hung else Phase.BACKWARD,
            idle_s=worker.idle,
            exit_code=worker.code,
            exit_age_s=self.now - worker.ended_at if worker.code is not None else 0.0,
            spent=self.spent.get(worker.rank, {}),
        )

    @property
    def wall(self) -> float:
        return self.now + self.skew

    def look(self) -> tuple[Observation, Verdict]:
        observation = self.observe()
        return observation, judge(observation, self.history, self.config, self.wall)

    def tick(self) -> tuple[do.Action, ...]:
        """One round, as the daemon does it. Raises KilledError when it is the supervisor's time."""
        observation = self.observe()
        for body in news(self.history, observation):
            self.append(body)
        for order in observation.control.orders if observation.control else ():
            asked = order.kind == OrderKind.DUMP and order.id not in self.history.dumps
            if asked and carried_out(observation, self.config, order.id):
                self.append(ev.EvidenceKept(attempt=1, generation=1, path="p", order=order.id, nodes=("n0",)))
        for body in notices.over(self.history, observation, self.config):
            self.append(body)
        verdict = judge(observation, self.history, self.config, self.wall)
        if verdict.failed and not self._judged(observation):
            self.append(judgement(observation, verdict))
        if notices.is_new(self.history, verdict):
            self.append(judgement(observation, verdict))
        found = recovered(self.history, observation, self.wall)
        if found is not None:
            self.append(found)
        actions = decide(self.history, observation, verdict, self.config, self.wall)
        for action in actions:
            self.carry_out(action)
        return actions

    def _judged(self, observation: Observation) -> bool:
        return any(
            generation.failure is not None
            for attempt in self.history.attempts
            for generation in attempt.generations
            if (attempt.number, generation.number) == (observation.attempt, observation.generation)
        )

    def live_tick(self) -> tuple[do.Action, ...]:
        """A tick that may kill the supervisor; its eyes open afresh then."""
        try:
            return self.tick()
        except KilledError:
            self.killed_after = None
            self.open_eyes()
            return ()

    def open_eyes(self) -> None:
        """What a supervisor remembers between looks is gone: it was killed, or it slept."""
        self._pulse.clear()
        self._missed_at.clear()
        self._refused.clear()
        self._at, self._running_since = (0, 0), None

    def append(self, body: ev.Body) -> None:
        event = ev.Event(seq=len(self.journal) + 1, time=self.wall, epoch=1, body=body)
        decoded = decode(encode(event))
        assert decoded is not None
        self.journal.append(decoded)
        self.history = apply(self.history, decoded)
        self._effect()

    def _effect(self) -> None:
        self.effects += 1
        if self.killed_after is not None and self.effects >= self.killed_after:
            raise KilledError

    def carry_out(self, action: do.Action) -> None:  # noqa: PLR0912 - one branch an action
        match action:
            case do.Submit():
                self._submit(action)
            case do.Prepare():
                self.append(
                    ev.GenerationIntended(
                        attempt=action.attempt,
                        generation=action.generation,
                        members=action.members,
                        reason=action.reason,
                    )
                )
                self._write(action.attempt, action.generation, ControlPhase.PREPARE, action.members)
            case do.Go():
                self.append(
                    ev.GenerationWent(
                        attempt=action.attempt,
                        generation=action.generation,
                        members=action.members,
                        master=action.master,
                        port=action.port,
                    )
                )
                self._write(action.attempt, action.generation, ControlPhase.GO, action.members)
            case do.SetBounds():
                self.append(ev.BoundsSet(**vars(action)))
            case do.TakeEvidence():
                assert self.control is not None
                order = Order(id=action.order, kind=action.kind)
                self.control = replace(self.control, orders=(*self.control.orders, order))
                self._effect()
            case do.PassOn():
                assert self.control is not None
                if action.kind == OrderKind.PROFILE and action.order not in self.history.profiles_asked:
                    self.append(
                        ev.ProfileAsked(
                            order=action.order,
                            attempt=self.control.attempt,
                            generation=self.control.generation,
                            reason=action.reason,
                        )
                    )
                orders = (Order(id=action.order, kind=action.kind),) if action.order else ()
                self.control = replace(
                    self.control, hot=dict(self.history.hot), orders=(*self.control.orders, *orders)
                )
                self._effect()
            case do.Reconfigure():
                self.append(
                    ev.SettingsChanged(
                        request=action.request.id,
                        by=action.request.by,
                        changes=action.request.settings,
                        config_digest="",
                        target_steps=self.history.target_steps,
                        target_tokens=0,
                    )
                )
            case do.SaveAndLeave():
                assert self.control is not None
                assert self.control.attempt == action.attempt
                self._write(action.attempt, self.control.generation, ControlPhase.SAVE, self.control.members)
            case do.Cancel():
                if self.history.newest and self.history.newest.cancel is None:
                    self.append(ev.CancelIntended(attempt=action.attempt, reason=action.reason))
                job = self.jobs.get(action.attempt)
                if job and job.state.alive and job.ends_in is None:
                    job.ends_in, job.ends_as = 2, JobState.ENDED_CANCELLED
                self._effect()
            case do.CloseAttempt():
                self.append(
                    ev.AttemptEnded(attempt=action.attempt, job_state=action.job_state, reason=action.reason)
                )
            case do.SetState():
                self.append(ev.StateChanged(state=action.state, reason=action.reason))
            case do.Answer():
                self._answer(action)
            case do.Tell():
                self.append(action.alert)
            case do.Wait():
                pass
            case _:
                assert_never(action)

    def _submit(self, action: do.Submit) -> None:
        if self.history.state in {RunState.COMPLETED, RunState.CANCELLED}:
            self.submitted_after_end += 1
        known = [item for item in self.history.attempts if item.number == action.attempt]
        if not known:
            self.append(
                ev.AttemptIntended(
                    attempt=action.attempt, tag="t", reason=action.reason, exclude=action.exclude
                )
            )
        if known and not self._surely_absent(action.attempt):
            return
        self._write(action.attempt, 1, ControlPhase.PREPARE, ())
        self._refused.discard(action.attempt)
        self._missed_at.pop(action.attempt, None)
        if self.refuse_submissions:
            self.refuse_submissions -= 1
            self._refused.add(action.attempt)
            self.append(ev.SubmitFailed(attempt=action.attempt, reason="socket timed out", permanent=False))
            return
        assert action.attempt not in self.jobs, "submitted twice"
        self.jobs[action.attempt] = Job(attempt=action.attempt)
        self._born[action.attempt] = self.now
        self.most_jobs = max(self.most_jobs, len(self.live_jobs))
        self._effect()
        if self.lose_replies:
            self.lose_replies -= 1
            if not self._surely_absent(action.attempt) and self.history.newest.submitted_at is not None:
                return
            self.append(ev.SubmitFailed(attempt=action.attempt, reason="timed out", permanent=False))
            return
        self._told[action.attempt] = self.now
        self.append(ev.AttemptSubmitted(attempt=action.attempt, job_id="1"))

    def _surely_absent(self, attempt: int) -> bool:
        """As the supervisor's hands do it: one that is there is adopted, and one look in vain is not enough."""
        if attempt in self.jobs and self._shown(attempt) and not self.queue_silent:
            self._told[attempt] = self.now
            self.append(ev.AttemptSubmitted(attempt=attempt, job_id="1", adopted=True))
            return False
        if self.queue_silent:
            return False
        return attempt in self._refused or self.now - self._missed_at.setdefault(attempt, self.now) >= 5

    def _answer(self, action: do.Answer) -> None:
        request = action.request
        self.append(ev.RequestTaken(id=request.id, request=request.kind, by=request.by, args={}))
        for body in action.events:
            self.append(body)
        self.append(ev.RequestDone(id=request.id, outcome=action.outcome, ok=action.ok))
        self.requests.pop(request.id, None)

    def _write(self, attempt: int, generation: int, phase: ControlPhase, members: tuple[str, ...]) -> None:
        kept = self.control.orders if self.control and self.control.attempt == attempt else ()
        self.control = Control(
            attempt=attempt, generation=generation, phase=phase, members=members, port=4000, orders=kept
        )
        self._effect()

    # --- running

    def run(self, seconds: int = 300) -> RunState:
        """Until the run is over and its job too, or the time is up."""
        for _ in range(seconds):
            self.move()
            self.live_tick()
            newest = self.history.newest
            if (
                self.history.state.final
                and not self.requests
                and (newest is None or newest.ended is not None)
            ):
                break
        return self.history.state

    def until(self, condition, seconds: int = 100) -> None:
        for _ in range(seconds):
            if condition(self):
                return
            self.move()
            self.live_tick()
        raise AssertionError(f"not within {seconds} s; state {self.history.state}: {self.history.reason}")

    def kinds(self) -> list[str]:
        return [type(event.body).__name__ for event in self.journal]


def training(world: World) -> bool:
    """Every worker has done a step of the newest generation."""
    return world.look()[1].kind is VerdictKind.HEALTHY


def fold_of(found: list[ev.Event]) -> History:
    history = History()
    for event in found:
        history = apply(history, event)
    return history
