"""One observation beside the run's history and configuration, and what every rule asks of them."""

from dataclasses import dataclass
from functools import cached_property

from contract.beat import WorkerBeat
from contract.config import RunConfig
from contract.history import AttemptHistory, GenerationHistory, History
from contract.states import ControlPhase, JobState, Phase
from supervisor.core.observation import NodeSeen, Observation

# Positions in the story of a rank. A save and an evaluation come after their step was counted, before the next one.
_ORDER = {
    Phase.UNKNOWN: 0,
    Phase.START: 1,
    Phase.COMPILE: 2,
    Phase.LOAD: 3,
    Phase.EVALUATE: 4,
    Phase.SAVE: 5,
    Phase.DATA: 6,
    Phase.FORWARD: 6,
    Phase.BACKWARD: 6,
    Phase.OPTIMIZER: 7,
    Phase.EXIT: 8,
}


MUTE_S = 60.0  # a program that knows the page marks it sooner than this


@dataclass(frozen=True, kw_only=True)
class Look:
    """Everything that a verdict may rest on."""

    observation: Observation
    history: History
    config: RunConfig
    now: float

    @property
    def attempt(self) -> AttemptHistory | None:
        """The journal's attempt that is observed."""
        return attempt_of(self.history, self.observation.attempt)

    @cached_property
    def generation(self) -> GenerationHistory | None:
        attempt = self.attempt
        found = (
            [item for item in attempt.generations if item.number == self.observation.generation]
            if attempt
            else []
        )
        return found[0] if found else None

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Nodes of this generation; the journal knows them when control.json does not (generation 1, saving)."""
        known = self.generation
        return self.observation.members or (known.members if known else ())

    @cached_property
    def member_set(self) -> frozenset[str]:
        """The same, for thousands of look-ups."""
        return frozenset(self.members)

    @cached_property
    def lost_before(self) -> frozenset[str]:
        """Nodes that this attempt has lost in an earlier generation, and gone on without."""
        before = self.attempt.generations if self.attempt else ()
        return frozenset(
            node
            for item in before
            if item.number < self.observation.generation and item.failure is not None
            for node in item.failure.nodes
            if node not in self.member_set
        )

    @property
    def expected(self) -> int:
        """Workers that this generation has; 0 while its members are not known."""
        return len(self.members) * self.config.job.ranks_per_node

    @property
    def pausing(self) -> bool:
        return saving(self.observation)

    @property
    def ending(self) -> bool:
        """Whether we have asked for the end of this attempt: then its workers' ends explain nothing."""
        control = self.observation.control
        attempt = self.attempt
        leaving = control is not None and control.phase is ControlPhase.LEAVE
        return leaving or (attempt is not None and attempt.cancel is not None)

    @property
    def present_s(self) -> float:
        """For how long we have watched this generation with its job running."""
        if self.observation.generation > 1:
            return self.observation.watched_s
        return min(self.observation.watched_s, self.observation.running_s)

    @property
    def job_over(self) -> bool:
        return job_over(self.observation, self.config)

    @property
    def fresh_s(self) -> float:
        return fresh_s(self.config, self.observation.lag_s)

    @property
    def silent_limit_s(self) -> float:
        return silent_limit_s(self.config, self.observation.lag_s)

    @cached_property
    def beating(self) -> tuple[NodeSeen, ...]:
        """Nodes whose agent of this attempt is seen to live."""
        return tuple(seen for seen in self.observation.nodes if self.is_fresh(seen))

    @cached_property
    def member_nodes(self) -> tuple[NodeSeen, ...]:
        return tuple(seen for seen in self.observation.nodes if seen.node in self.member_set)

    @property
    def measurable(self) -> bool:
        """Whether progress can be seen. A program of another make may never write into its page."""
        return not self.config.job.command or any(
            worker.phase is not Phase.UNKNOWN for _, worker in self.observation.workers
        )

    def is_fresh(self, seen: NodeSeen) -> bool:
        return is_fresh(seen, self.observation, self.config)

    @cached_property
    def live_workers(self) -> tuple[tuple[NodeSeen, WorkerBeat], ...]:
        """Workers that run, of nodes that are members (or of all, before the members are known)."""
        members = self.member_set
        return tuple(
            (seen, worker)
            for seen, worker in self.observation.workers
            if worker.exit_code is None and (not members or seen.node in members)
        )

    def first_step_done(self, worker: WorkerBeat) -> bool:
        """Whether the worker has finished an optimizer step of this generation."""
        resumed = self.observation.resume_step
        return resumed is not None and worker.step > resumed


def attempt_of(history: History, number: int) -> AttemptHistory | None:
    return next((item for item in history.attempts if item.number == number), None)


def saving(observation: Observation) -> bool:
    """Whether the attempt was asked to save and leave (pause)."""
    control = observation.control
    return control is not None and control.phase is ControlPhase.SAVE


def fresh_s(config: RunConfig, lag_s: float) -> float:
    """A beat this young tells the present, as well as the file system shows it."""
    return max(3.0, 3 * config.monitor.beat_s) + lag_s


def silent_limit_s(config: RunConfig, lag_s: float) -> float:
    """For how long a beat may stand still before its silence means something."""
    return config.monitor.node_silent_s + lag_s


def is_fresh(seen: NodeSeen, observation: Observation, config: RunConfig) -> bool:
    return (
        seen.beat is not None
        and seen.beat.attempt == observation.attempt
        and seen.alive is not False
        and seen.silent_s <= fresh_s(config, observation.lag_s)
    )


def job_over(observation: Observation, config: RunConfig) -> bool:
    """Whether nothing of the job is left. GONE is no word but the lack of one: agents that beat contradict it."""
    state = observation.job.state
    if state is JobState.GONE:
        return not any(is_fresh(seen, observation, config) for seen in observation.nodes)
    return state.ended


def position(worker: WorkerBeat) -> tuple[int, int, int, int]:
    """How far a worker is. Of two, the smaller is behind: the other waits for it."""
    in_turn = worker.micro_step if _ORDER[worker.phase] in {4, 5, 6} else 0
    return (worker.step, _ORDER[worker.phase], in_turn, int(worker.phase))


def some(names: tuple[str, ...], limit: int = 5) -> str:
    """A few names for a sentence."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
