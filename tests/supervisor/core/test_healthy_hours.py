"""Healthy hours: saves, evaluations, compilations, stalls and stragglers as clusters have them. Nothing is killed.

Time is virtual; judge and decide are the real ones. Each standstill is looked at right before it ends, when it is longest:
looks at any other moment would only see less. `CIUIC_HEALTHY_SEED` gives another history.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from contract import events as ev
from contract.beat import Beat, WorkerBeat
from contract.config import RunConfig
from contract.control import Control
from contract.fold import apply
from contract.history import History
from contract.states import AgentPhase, ControlPhase, JobState, Phase, VerdictKind
from supervisor.core import actions as do
from supervisor.core import notices
from supervisor.core.curve import Curve, Row
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, NodeSeen, Observation
from supervisor.core.recovery import news, recovered
from supervisor.record import judgement

NODES, RANKS = 4, 2
NAMES = tuple(f"n{number}" for number in range(NODES))
CONFIG = RunConfig.model_validate(
    {
        "run": {"name": "r", "steps": 10_000_000},
        "job": {"command": ["true"], "executor": "slurm", "nodes": NODES, "ranks_per_node": RANKS},
        "monitor": {"on_slow": "replace"},
    }
)
LEARNED = ("evaluate", "save", "data", "forward", "backward", "optimizer")


@dataclass
class Healthy:
    """A run that is well, in a world that is as usual."""

    dice: random.Random
    step_s: float
    now: float = 1_000_000.0
    step: int = 0
    generation: int = 0
    since: float = 0.0  # when watching this generation began
    first_done: bool = False
    usual: dict[str, float] = field(default_factory=dict)
    curve: Curve = field(default_factory=Curve)
    seen_curve: object = None
    history: History = field(default_factory=History)
    seq: int = 0
    straggler_until: float = 0.0
    straggler: float = 1.0
    verdicts: Counter = field(default_factory=Counter)
    kills: list[str] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)

    def append(self, body: ev.Body) -> None:
        self.seq += 1
        self.history = apply(self.history, ev.Event(seq=self.seq, time=self.now, epoch=1, body=body))

    def begin(self) -> None:
        self.append(
            ev.RunCreated(run="r", config_digest="", version="0", target_steps=10_000_000, target_tokens=0)
        )
        self.append(ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"))
        self.append(ev.AttemptSubmitted(attempt=1, job_id="77"))

    def spread(self, middle: float, sigma: float) -> float:
        return middle * self.dice.lognormvariate(0.0, sigma)

    # --- looking

    def wait(
        self, phase: Phase, seconds: float, *, rank: int = 0, others: Phase = Phase.DATA, **look
    ) -> None:
        """Rank `rank` stands still in a phase for so long, the others for it. Looked at in the last moment."""
        self.now += seconds
        self.look(phase, seconds, rank, others, **look)
        if self.first_done:
            self.usual[phase.word] = max(self.usual.get(phase.word, 0.0), seconds)

    def look(
        self, phase: Phase, idle_s: float, rank: int, others: Phase, silent_s: float = 0.3, late: int = -1
    ) -> None:
        beats = []
        for number, name in enumerate(NAMES):
            workers = tuple(
                WorkerBeat(
                    rank=at,
                    local_rank=at % RANKS,
                    pid=at,
                    step=self.step,
                    phase=phase if at == rank else others,
                    idle_s=idle_s if at == rank else max(0.1, idle_s - self.dice.random()),
                )
                for at in range(number * RANKS, (number + 1) * RANKS)
            )
            beat = Beat(
                node=name,
                attempt=1,
                generation=self.generation,
                sequence=self.seq,
                phase=AgentPhase.RUNNING,
                ready_for=self.generation,
                workers=workers,
            )
            silent = silent_s if late < 0 or number == late else 0.4
            beats.append(NodeSeen(node=name, beat=beat, silent_s=silent))
        queue = JobState.UNKNOWN if self.dice.random() < 0.02 else JobState.RUNNING
        observation = Observation(
            attempt=1,
            generation=self.generation,
            job=JobLook(state=queue, job_id="77", age_s=self.dice.random() * 30),
            control=Control(attempt=1, generation=self.generation, phase=ControlPhase.GO, members=NAMES),
            claim_job="77",
            members=NAMES,
            master="n0",
            port=1,
            nodes=tuple(beats),
            resume_step=0 if self.generation == 1 else self.resumed,
            usual=dict(self.usual),
            watched_s=self.now - self.since,
            running_s=self.now - self.since,
            curve=self.seen_curve,
        )
        self.tick(observation)

    def tick(self, observation: Observation) -> None:
        for body in (*news(self.history, observation), *notices.over(self.history, observation, CONFIG)):
            self.append(body)
        verdict = judge(observation, self.history, CONFIG, self.now)
        self.verdicts[verdict.kind] += 1
        if verdict.failed:
            self.kills.append(verdict.reason)
        if notices.is_new(self.history, verdict):
            self.append(judgement(observation, verdict))
            self.noticed.append(verdict.reason)
        found = recovered(self.history, observation, self.now)
        if found is not None:
            self.append(found)
        for action in decide(self.history, observation, verdict, CONFIG, self.now):
            match action:
                case do.SetState():
                    self.append(ev.StateChanged(state=action.state, reason=action.reason))
                case do.Tell():
                    self.append(action.alert)
                    self.append(ev.AlertDelivered(id=action.alert.id))
                case do.Wait():
                    pass
                case _:
                    self.kills.append(f"{type(action).__name__}: {verdict.reason}")

    # --- living

    def start(self) -> None:
        """A generation begins: imports, loading, a slow first step with compilation."""
        self.generation += 1
        self.resumed = self.step
        self.since, self.first_done = self.now, False
        if self.generation > 1:
            self.append(
                ev.GenerationIntended(attempt=1, generation=self.generation, members=NAMES, reason="planned")
            )
        self.wait(Phase.START, min(600.0, self.spread(60, 0.6)), others=Phase.START)
        self.wait(Phase.LOAD, min(1200.0, self.spread(120, 0.7)), others=Phase.LOAD)
        self.wait(Phase.FORWARD, min(500.0, self.spread(90, 0.6)), others=Phase.FORWARD)
        self.step += 1
        self.first_done = True

    def one_step(self) -> None:
        dice, slow = self.dice, self.straggler if self.now < self.straggler_until else 1.0
        seconds = self.spread(self.step_s, 0.08) * slow
        if dice.random() < 1 / 1000:
            seconds *= 3  # garbage collection, a neighbour, a routing storm
        begun = self.now
        if dice.random() < 1 / 1500:  # the storage is slow to answer one rank
            self.wait(
                Phase.DATA, dice.uniform(5, 28), rank=dice.randrange(NODES * RANKS), others=Phase.FORWARD
            )
        rank = dice.randrange(NODES * RANKS)
        self.wait(
            dice.choice((Phase.FORWARD, Phase.BACKWARD)),
            seconds * dice.uniform(0.4, 0.8),
            rank=rank,
            others=Phase.OPTIMIZER,
        )
        self.now = max(self.now, begun + seconds)
        self.step += 1
        self.curve.add(
            Row(
                attempt=1,
                generation=self.generation,
                step=self.step,
                loss=2 + 3 / (1 + self.step / 500) + dice.gauss(0, 0.05),
                norm=dice.lognormvariate(0, 0.3),
                seconds=self.now - begun,
                tokens=4096.0,
            )
        )
        if self.step % 10 == 0:
            monitor = CONFIG.monitor
            self.seen_curve = self.curve.look(
                slow_s=monitor.slow_s, sigma=monitor.spike_sigma, least_scale=0.0
            )
        self.sometimes()

    def sometimes(self) -> None:
        dice = self.dice
        if self.step % 200 == 0:  # a save: rank 0 writes, the others wait; shared storage may be busy
            busy = 3.0 if dice.random() < 0.05 else 1.0
            self.wait(Phase.SAVE, min(200.0, self.spread(25, 0.3)) * busy, others=Phase.DATA)
        if self.step % 500 == 0:
            for _ in range(8):
                self.wait(Phase.EVALUATE, self.spread(3, 0.5), others=Phase.EVALUATE)
        if dice.random() < 1 / 4000:
            self.wait(Phase.COMPILE, self.spread(90, 0.5), others=Phase.COMPILE)
        if dice.random() < 1 / 3000:  # the file system stands still: no beat moves, nobody reads or writes
            self.stall(dice.uniform(5, 180))
        if dice.random() < 1 / 300:  # a node's beat is late
            self.look(
                Phase.FORWARD, 0.5, 0, Phase.FORWARD, silent_s=dice.uniform(3, 11), late=dice.randrange(NODES)
            )
        if dice.random() < 1 / 1500:
            self.straggler_until = self.now + dice.uniform(60, 1800)
            self.straggler = dice.uniform(1.05, 1.2)

    def stall(self, seconds: float) -> None:
        begun = self.now
        for share in (0.3, 0.7, 1.0):
            self.now = begun + seconds * share
            self.look(Phase.DATA, 1.0, 0, Phase.DATA, silent_s=seconds * share)
        self.since = self.now  # as the observer does it (test_curves.py): eyes that were shut
        for after in (0.5, 1.5):  # the agents are back before the workers' reads are
            self.now += 1.0
            self.look(Phase.DATA, seconds + after, self.dice.randrange(NODES * RANKS), Phase.FORWARD)


def live(hours: float, step_s: float, seed: int) -> Healthy:
    run = Healthy(dice=random.Random(seed), step_s=step_s)
    run.begin()
    run.start()
    end = run.now + hours * 3600
    restart = run.now + 24 * 3600
    while run.now < end:
        run.one_step()
        if run.now > restart:
            restart += 24 * 3600
            run.start()
    return run


def check(run: Healthy) -> None:
    assert run.kills == []
    assert run.noticed == []
    assert set(run.verdicts) <= {VerdictKind.HEALTHY, VerdictKind.STARTING, VerdictKind.UNKNOWN}
    assert run.verdicts[VerdictKind.HEALTHY] > 0.9 * run.verdicts.total()


SEED = int(os.environ.get("CIUIC_HEALTHY_SEED", "1"))


@pytest.mark.parametrize(("hours", "step_s"), [(4, 1.0), (30, 8.0), (66, 30.0)])
def test_a_hundred_healthy_hours(hours: float, step_s: float) -> None:
    check(live(hours, step_s, SEED))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("hours", "step_s"), [(100, 1.0), (300, 4.0), (300, 10.0), (300, 40.0)])
def test_a_thousand_healthy_hours(hours: float, step_s: float) -> None:
    check(live(hours, step_s, SEED + 1))


def test_this_world_shows_a_hang_too() -> None:
    """The same run with limits too small for it: what keeps it alive is not blindness."""
    run = live(1, 1.0, SEED)
    assert run.kills == []
    run.wait(Phase.FORWARD, 120.0, rank=3, others=Phase.OPTIMIZER)
    assert any("rank 3" in reason for reason in run.kills)


def test_a_straggler_beyond_the_threshold_is_noticed() -> None:
    run = live(2, 1.0, SEED)
    run.straggler, run.straggler_until = 1.8, run.now + 1e6
    for _ in range(400):
        run.one_step()
        run.straggler, run.straggler_until = 1.8, run.now + 1e6
    assert run.kills == []
    assert len(run.noticed) == 1
    assert replace(run.history.notices["slow"].seen, observation={}).verdict == VerdictKind.SLOW
