"""The agent's one loop: look, decide, act, report. The decisions are in `decide`, here are the hands."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import assert_never

from contract.beat import UNFIT
from contract.config import RunConfig
from contract.control import Go, create_go
from contract.exits import WorkerExit, write_exits
from contract.layout import RunDir
from contract.states import AgentPhase
from slurm.agent.crew import Crew, program_of
from slurm.agent.decide import (
    Action,
    Compare,
    Elect,
    Leave,
    Prepare,
    Save,
    Situation,
    Stage,
    Start,
    Wait,
    decide,
    done_code,
)
from slurm.agent.environment import base_environment
from slurm.agent.evidence import Evidence, Place
from slurm.agent.handover import Handover
from slurm.agent.identity import Identity
from slurm.agent.launch import Launch, cpus_of, start_workers
from slurm.agent.measuring import Measuring
from slurm.agent.meeting import Meeting
from slurm.agent.network import choose_link
from slurm.agent.news import News
from slurm.agent.output import NodeLog
from slurm.agent.pages import make_page_directory, remove_pages
from slurm.agent.preflight import Preflight
from slurm.agent.reporter import Reporter, first_beat
from slurm.agent.staging import Staging
from slurm.agent.wake import Wake

_GAP_S = 5.0  # between two turns of the loop: longer than any of its own work takes
_TURN_S = 0.1  # the longest sleep: pages are looked at, and signs of life taken, so often


class Agent:
    """One node's agent, from the claimed attempt to the exit code."""

    def __init__(self, run: RunDir, attempt: int, config: RunConfig, me: Identity) -> None:
        self.run, self.attempt, self.config, self.me = run, attempt, config, me
        place, now = run.attempt(attempt), time.monotonic()
        self._log = NodeLog(place.log(me.node))
        beat = first_beat(me.node, attempt, 1, me.host)
        self._reporter = Reporter(path=place.beat(me.node), period_s=config.monitor.beat_s, beat=beat)
        self._generation, self._started = 1, 0  # the one we are in; the one that our workers belong to
        self._stage, self._stage_at, self._busy_at = Stage.CLEARING, now, now
        self._turned_at = now
        self._done: int | None = None
        self._first_done_at: float | None = None
        self._leaving: Leave | None = None
        self._cut_off = ""
        self._misled = 0  # generation whose master was said to be here and is not
        self._handover = Handover()
        self._unrecorded = False
        self._wake = Wake()
        link = choose_link(
            local=me.local,
            wanted=config.node.interface,
            environment={**os.environ, **config.job.environment},
        )
        self._staging = Staging(run, config, {**os.environ, **config.job.environment}, self._tell)
        self._preflight = Preflight(place.path, config, me, os.environ, self._tell)
        self._measuring = Measuring(run, attempt, config, me, self._tell)
        self._news = News(run, attempt, local=me.local, tell=self._tell)
        self._crew = Crew(
            node=me.node,
            program=program_of(config),
            environment=base_environment(
                os.environ, config, me.index, local=me.local, stage=self._staging.stage
            ),
            clock=time.monotonic,
            tell=self._tell,
        )
        self._evidence = Evidence(
            Place(
                attempt=place,
                number=attempt,
                node=me.node,
                gpus=config.job.gpus_per_node > 0,
                environment=self._crew.environment,
            )
        )
        self._meeting = Meeting(
            place, config, me, self._crew.environment, link, tell=self._tell, note=self._note
        )
        self._cpus = cpus_of(config, self._crew.environment)
        if any(self._cpus):
            self._note(f"workers stay on the CPUs beside their GPUs: {' '.join(self._cpus)}")
        if link.reason:
            self._note(f"network: {link.reason}")
        if link.note:
            self._tell(link.note)
        remove_pages(run, me.node)

    def work(self) -> int:
        """Until there is nothing left to do here; the exit code."""
        self._wake.catch_signals()
        while True:
            now = time.monotonic()
            self._take_in(now)
            self._keep_evidence(now)
            if self._leaving is None:
                self._act(decide(self._situation(now)), now)
            if self._stage is Stage.CLEARING:
                self._clear(now)
            if self._leaving is not None and self._crew.over():
                return self._left(self._leaving)
            self._measuring.look(now)
            self._preflight.look(now)
            if self._news.go is not None:  # a spare, too, takes no probe any more
                self._meeting.end()
            elif self._stage is Stage.READY:
                self._meeting.look(now, self._news.peers)
            self._staging.look(now)
            self._report(now)
            self._log.flush()
            self._wake.sleep(self._outputs(), min(_TURN_S, self._reporter.wait_s(now)))

    def last_words(self, text: str) -> None:
        """Into the node's log, whatever state we are in."""
        for line in text.splitlines():
            self._log.add(self._generation, None, line)
        self._log.flush()

    # -- look ------------------------------------------------------------------------------------------------

    def _mind_the_gap(self, now: float) -> None:
        """Eyes that were shut judge nothing: this process was stopped, or its whole machine, or a disk was."""
        gap = now - self._turned_at
        self._turned_at = now
        if gap > _GAP_S:
            self._tell(f"did not run for {gap:.0f} s; standstills are counted from here on")
            for worker in self._crew.alive:
                worker.blink(now)

    def _take_in(self, now: float) -> None:
        self._mind_the_gap(now)
        for worker in self._crew.workers.values():
            worker.output.drain()
            if worker.alive and worker.look(now):
                self._reporter.changed = True
        self._crew.terminated = self._wake.terminated
        exits = self._crew.hear()
        if exits or self._unrecorded:
            self._record(exits)
        if self._leaving is None:
            self._crew.warm_up()  # again, should it have died: its imports take longer than any supervisor
        electing = self._stage is Stage.READY and self._generation == 1 and self._news.go is None
        leaving = self._done is not None or self._wake.save
        self._news.refresh(now, peers_matter=electing or leaving)

    def _situation(self, now: float) -> Situation:
        crew, news, job = self._crew, self._news, self.config.job
        codes = tuple(item.code for item in crew.exits)
        if self._stage is Stage.STARTED and done_code(codes) is not None:
            self._busy_at = now
        if self._first_done_at is None and (
            self._done is not None or any(beat.done_code is not None for beat in news.peers.values())
        ):
            self._first_done_at = now
        return Situation(
            node=self.me.node,
            index=self.me.index,
            attempt=self.attempt,
            generation=self._generation,
            nodes=job.nodes,
            spares=job.spare_nodes,
            stage=self._stage,
            control=news.control,
            go=news.go,
            peers=news.peers,
            alive=len(crew.alive),
            codes=codes,
            save_signal=self._wake.save,
            terminated=self._wake.terminated,
            hopeless=crew.hopeless,
            unfit=self._unfit,
            compares=not self._meeting.comparison.over,
            misfits=self._meeting.comparison.bad,
            ready_s=now - self._stage_at,
            since_done_s=0.0 if self._first_done_at is None else now - self._first_done_at,
            unattended_s=now - max(self._busy_at, news.supervisor_moved_at),
            orphan_s=self.config.supervisor.orphan_s,
        )

    @property
    def _unfit(self) -> str:
        """Why this node must not train, "" when nothing is known against it."""
        return self._preflight.unfit or self._cut_off or self._meeting.comparison.unfit

    # -- act -------------------------------------------------------------------------------------------------

    def _keep_evidence(self, now: float) -> None:
        """Look at the workers as ordered, or after a crash, before anything ends them."""
        if self._stage is Stage.STARTED:
            self._evidence.glance(self._crew.alive, self._started, now)
        control = None if self._wake.terminated else self._news.control
        self._reporter.orders_done(
            [
                *self._evidence.turn(now),
                *self._evidence.obey(control, self._crew.alive, self._started, now),
            ]
        )

    def _act(self, action: Action, now: float) -> None:
        ends = isinstance(action, Prepare | Leave) and self._crew.alive and not self._wake.terminated
        if ends and self._evidence.holds(now):
            return  # the next turn comes to the same action
        match action:
            case Wait(done=done):
                if done is not None and self._done is None:
                    self._tell(f"done with {done}, waiting for the others")
                self._done = done
            case Prepare(generation=generation):
                self._prepare(generation, now)
            case Compare(nodes=nodes):
                self._meeting.compare(nodes, self._news.peers)
            case Elect(members=members):
                self._elect(members)
            case Start(go=go):
                self._start(go, now)
            case Save():
                self._crew.ask_to_save(now)
            case Leave(why=why, code=code):
                self._tell(f"leaving with {code}: {why}")
                self._leaving = action
                self._crew.end()
            case other:
                assert_never(other)
        self._hand_over_orders()

    def _prepare(self, generation: int, now: float) -> None:
        self._tell(f"generation {generation} is to be prepared")
        self._generation = generation
        self._done = self._first_done_at = None
        self._meeting.let_go()
        self._meeting.end()
        self._crew.end()
        self._enter(Stage.CLEARING, now)

    def _clear(self, now: float) -> None:
        """On the way to READY: everything of the last generation gone, the warm process there, a port held."""
        if not self._crew.over() or self._leaving is not None:
            return
        if self._crew.workers:
            self._crew.clear()
            self._unrecorded = False
            remove_pages(self.run, self.me.node)
        if self._crew.ready and self._preflight.over:
            self._meeting.hold()
            self._enter(Stage.READY, now)

    def _elect(self, members: tuple[str, ...]) -> None:
        if not self._meeting.agree(members, self._news.peers):
            return  # a probe is on its way; the next turn comes to the same action
        master, port = self._meeting.link.address, self._meeting.port
        go = Go(attempt=self.attempt, generation=1, members=members, master=master, port=port)
        if create_go(self.run, go):
            self._tell(f"generation 1 starts on {', '.join(members)}")
            self._news.go = go

    def _start(self, go: Go, now: float) -> None:
        if not self._crew.ready:  # the warm process died while it waited
            return
        self._cut_off = self._meeting.start(go.master)
        if self._cut_off:
            return  # the next turn leaves, with this as the reason
        if go.members[0] == self.me.node and self._meeting.port != go.port:
            if self._misled < self._generation:
                self._misled = self._generation
                self._tell(f"ordered to lead at {go.master}:{go.port}, which is not held here; not starting")
            return
        self._enter(Stage.STARTED, now)
        self._started = self._generation
        launch = Launch(
            go=go,
            control=self._news.control,
            run_dir=self.run.path,
            node=self.me.node,
            ranks_per_node=self.config.job.ranks_per_node,
            pages=make_page_directory(self.run, self.attempt, self._generation),
            link=self._meeting.link,
            log=self._log,
            cpus=self._cpus,
        )
        start_workers(self._crew, launch, self._meeting.hand_over(), now)

    def _hand_over_orders(self) -> None:
        first = next((worker for worker in self._crew.alive if worker.rank == 0), None)
        if first is None:
            return
        done, trouble = self._handover.give(self._news.control, first, (self.attempt, self._started))
        if trouble:
            self._tell(f"orders could not be given to rank 0: {trouble}")
        self._reporter.orders_done(done)

    # -- report ----------------------------------------------------------------------------------------------

    def _record(self, exits: Sequence[WorkerExit]) -> None:
        for item in exits:
            what = (
                "ended by order"
                if item.ordered
                else f"ended: {item.what} at step {item.step}, {item.phase.word}"
            )
            self._log.add(self._started, None, f"rank {item.rank} {what}")
        self._reporter.changed = True
        if done_code(tuple(item.code for item in exits if not item.ordered)) is None:
            self._evidence.crashed(self._started, time.monotonic())
        try:
            write_exits(self.run, self.attempt, self._started, self.me.node, self._crew.exits)
        except OSError as error:  # a full disk may be what ended them: try again each turn
            if not self._unrecorded:
                self._tell(f"the exit record cannot be written: {error}")
            self._unrecorded = True
        else:
            self._unrecorded = False

    def _report(self, now: float) -> None:
        network = (
            {} if self._stage is Stage.STARTED else self._meeting.facts()
        )  # workers need the beat's room
        if network or "network" in self._reporter.beat.health:
            self._reporter.health("network", network)
        if self._meeting.comparison.began and self._stage is Stage.READY:
            self._reporter.health("comparison", {"began": True})
        if self._unfit and self._leaving is not None:
            self._reporter.health(UNFIT, {"why": self._unfit[:300]})
        if self._preflight.health:
            self._reporter.health("preflight", self._preflight.health)
        if self._staging.health:
            self._reporter.health("stage", self._staging.health)
        self._reporter.say(
            phase=self._phase(),
            generation=self._generation,
            ready_for=self._generation if self._stage is Stage.READY else 0,
            address=self._meeting.link.address,
            port=self._meeting.port,
            done=self._done,
        )
        if self._reporter.wait_s(now) <= 0:
            # The ends of an older generation's workers are ours to order, and must not pass for this one's.
            workers = self._crew.beats(now) if self._started == self._generation else ()
            self._reporter.write(workers, self._crew.usual(), now)

    def _phase(self) -> AgentPhase:
        if self._done is not None or self._leaving is not None:
            return AgentPhase.LEAVING
        match self._stage:
            case Stage.CLEARING:
                return AgentPhase.STARTING
            case Stage.READY:
                return AgentPhase.READY
            case Stage.STARTED:
                crashed = done_code(tuple(item.code for item in self._crew.exits)) is None
                return AgentPhase.WAITING if crashed else AgentPhase.RUNNING
            case other:
                assert_never(other)

    def _left(self, leave: Leave) -> int:
        """The last words: they stay in the beat for whoever waits for us."""
        self._done = leave.code
        self._meeting.let_go()
        self._meeting.end()
        self._measuring.end()
        self._staging.end()
        self._preflight.end()
        now = time.monotonic()
        self._report(now)
        self._reporter.write(self._crew.beats(now), self._crew.usual(), now)
        self._crew.clear()
        remove_pages(self.run, self.me.node)
        self._log.close()
        return leave.code

    def _tell(self, text: str) -> None:
        self._note(text)
        self._reporter.note(text)

    def _note(self, text: str) -> None:
        self._log.add(self._generation, None, text)

    # -- the loop's small parts --------------------------------------------------------------------------------

    def _enter(self, stage: Stage, now: float) -> None:
        self._stage, self._stage_at = stage, now

    def _outputs(self) -> Iterator[int]:
        """Whose news ends the sleep: the warm process, and workers that write."""
        if self._crew.descriptor is not None:
            yield self._crew.descriptor
        for worker in self._crew.workers.values():
            if worker.output.open:
                yield worker.output.reader
