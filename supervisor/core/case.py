"""Everything that a decision may rest on, and the questions that more than one rule asks of it."""

from dataclasses import dataclass

from contract.config import RunConfig
from contract.events import AlertQueued, Judged
from contract.history import AttemptHistory, GenerationHistory, History
from contract.states import ControlPhase, JobState, RunState
from supervisor.core.actions import Action, SetState, Tell
from supervisor.core.look import fresh_s, is_fresh, job_over, saving
from supervisor.core.observation import NodeSeen, Observation
from supervisor.core.verdict import Verdict

_DESERTED_S = 5.0
_SAME_TIME_S = 0.01
SHOWN_S = 30.0  # sooner than this a job that was handed in shows in the queue


@dataclass(frozen=True, kw_only=True)
class Case:
    """History is the truth to act on; observation and verdict say what the world is like now."""

    history: History
    observation: Observation
    verdict: Verdict
    config: RunConfig
    now: float

    @property
    def newest(self) -> AttemptHistory | None:
        return self.history.newest

    @property
    def generation(self) -> GenerationHistory | None:
        return self.newest.newest if self.newest else None

    @property
    def failure(self) -> Judged | None:
        """The recorded failure of the newest generation."""
        return self.generation.failure if self.generation else None

    @property
    def failed_at(self) -> float:
        """When that failure was recorded (journal time)."""
        at = self.generation.failed_at if self.generation else None
        return self.now if at is None else at

    @property
    def since_failure_s(self) -> float:
        """Negative when it was recorded by another clock."""
        since = self.now - self.failed_at
        return 0.0 if -_SAME_TIME_S < since < 0 else since  # the journal rounds

    @property
    def next_attempt(self) -> int:
        """A number that no attempt has used, also none that the journal has forgotten (restored, damaged)."""
        return max(self.newest.number if self.newest else 0, self.observation.used) + 1

    @property
    def unborn(self) -> bool:
        """The newest attempt is intended, and whether it was submitted is not recorded."""
        newest = self.newest
        return newest is not None and newest.submitted_at is None and newest.ended is None

    @property
    def may_have_gone_in(self) -> bool:
        """Whether a submission without an answer is too young for the queue's silence about it to mean anything.

        A controller under load shows a job seconds after it has taken it in.
        """
        newest = self.newest
        if newest is None or not self.unborn or newest.submit_impossible:
            return False
        since = max(newest.intended_at, newest.submit_failed_at or newest.intended_at)
        return 0 <= self.now - since < SHOWN_S

    @property
    def seen(self) -> bool:
        """Whether the observation is about the newest attempt."""
        return self.newest is not None and self.observation.attempt == self.newest.number

    @property
    def job_over(self) -> bool:
        """Whether the queue is sure that nothing of the newest attempt's job is left."""
        return self.seen and job_over(self.observation, self.config)

    @property
    def job_state(self) -> JobState:
        if not self.seen:
            return JobState.UNKNOWN
        state = self.observation.job.state
        if state is JobState.PENDING and any(self.is_fresh(seen) for seen in self.observation.nodes):
            return JobState.RUNNING  # the answer is older than the agents
        return state

    @property
    def pausing(self) -> bool:
        """Whether the newest attempt was asked to save and leave. The order outlives its attempt: then it is old."""
        newest = self.newest
        return newest is not None and newest.ended is None and self.seen and saving(self.observation)

    @property
    def deserted(self) -> bool:
        """Whether all agents have left and the queue, asked after that, still says that the job runs.

        srun waits for the tasks of a node that was lost in between: until Slurm's node time-out, or for ever.
        """
        job = self.observation.job
        ours = [
            seen.silent_s
            for seen in self.observation.nodes
            if seen.beat is not None and seen.beat.attempt == self.observation.attempt
        ]
        return self.job_state is JobState.RUNNING and bool(ours) and min(ours) - job.age_s >= _DESERTED_S

    @property
    def preparing(self) -> bool:
        control = self.observation.control
        return control is not None and control.phase is ControlPhase.PREPARE

    @property
    def local(self) -> bool:
        return self.config.job.executor == "local"

    @property
    def fresh_s(self) -> float:
        return fresh_s(self.config, self.observation.lag_s)

    def is_fresh(self, seen: NodeSeen) -> bool:
        return is_fresh(seen, self.observation, self.config)

    def state(self, state: RunState, reason: str) -> tuple[Action, ...]:
        """The action that records a state, unless it is recorded already."""
        return () if self.history.state is state else (SetState(state=state, reason=reason),)

    def tell(self, alert: AlertQueued) -> tuple[Action, ...]:
        """The action that tells, unless it was told since the last recovery (one message a cause), or somebody knows."""
        known = self.history.acknowledged.keys if self.history.acknowledged else ()
        return () if alert.key in self.history.open_keys or alert.key in known else (Tell(alert=alert),)
