"""The supervisor of the simulated run: its journal, and the real judgement and decisions."""

from dataclasses import replace

from contract import events as ev
from contract.config import RunConfig
from contract.fold import apply
from contract.history import AttemptHistory, GenerationHistory, History
from contract.states import RunState
from supervisor.core import recovery
from supervisor.core.actions import Action, Cancel, CloseAttempt, Prepare, SetState, Submit, Tell
from supervisor.core.asked import RESUMED
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import Observation
from supervisor.core.verdict import Verdict
from supervisor.simulate.looks import JOB_ID

_KEPT = 16  # generations of an attempt that are remembered whatever their age
_KEPT_ATTEMPTS = 64
_KEPT_FAULTS = 100


class Pilot:
    """Journal and decisions. `journal` keeps every event when asked to; decisions need only the history."""

    def __init__(self, config: RunConfig, *, keep: bool) -> None:
        self.config, self._keep, self._count = config, keep, 0
        self.history = History()
        self.journal: list[ev.Event] = []

    def append(self, body: ev.Body, now: float) -> None:
        self._count += 1
        event = ev.Event(seq=self._count, time=now, epoch=1, body=body)
        self.history = apply(self.history, event)
        if self._keep:
            self.journal.append(event)

    def begin(self, now: float) -> None:
        self.append(
            ev.RunCreated(
                run="simulated", config_digest="", version="", target_steps=10**12, target_tokens=0
            ),
            now,
        )

    def submit(self, action: Submit, now: float) -> None:
        self.append(
            ev.AttemptIntended(attempt=action.attempt, tag="", reason=action.reason, exclude=action.exclude),
            now,
        )
        self.append(ev.AttemptSubmitted(attempt=action.attempt, job_id=JOB_ID), now)

    def cancel(self, action: Cancel, now: float) -> None:
        newest = self.history.newest
        if newest is not None and newest.cancel is None:
            self.append(ev.CancelIntended(attempt=action.attempt, reason=action.reason), now)

    def prepare(self, action: Prepare, now: float) -> None:
        self.append(
            ev.GenerationIntended(
                attempt=action.attempt,
                generation=action.generation,
                members=action.members,
                reason=action.reason,
            ),
            now,
        )

    def go(self, at: tuple[int, int], members: tuple[str, ...], now: float) -> None:
        self.append(
            ev.GenerationWent(attempt=at[0], generation=at[1], members=members, master=members[0], port=1),
            now,
        )

    def resumed(self, at: tuple[int, int], step: int, now: float) -> None:
        self.append(ev.GenerationResumed(attempt=at[0], generation=at[1], step=step), now)

    def saved(self, at: tuple[int, int], step: int, now: float) -> None:
        """A checkpoint; the same step is no progress."""
        known = self.history.newest_checkpoint
        if known is None or step > known.step:
            self.append(ev.CheckpointSeen(step=step, attempt=at[0], generation=at[1]), now)

    def train(self, look: Observation, now: float) -> None:
        """Every worker has done its first step: the recovery, the state, and what people are told."""
        found = recovery.recovered(self.history, look, now)
        if found is not None:
            self.append(found, now)
        for action in self.decide(look, self.judge(look, now), now):
            self.record(action, now)
        if not self._keep:
            self._forget(now)

    def judge(self, look: Observation, now: float) -> Verdict:
        return judge(look, self.history, self.config, now)

    def fail(self, at: tuple[int, int], verdict: Verdict, detected_s: float, now: float) -> None:
        self.append(
            ev.Judged(
                attempt=at[0],
                generation=at[1],
                verdict=verdict.kind,
                cause=verdict.cause,
                reason=verdict.reason,
                step=verdict.step,
                signature=verdict.signature,
                entry=verdict.entry,
                suspects=verdict.suspects,
                nodes=verdict.nodes,
                detected_s=detected_s,
            ),
            now,
        )

    def decide(self, look: Observation, verdict: Verdict, now: float) -> tuple[Action, ...]:
        return decide(self.history, look, verdict, self.config, now)

    def record(self, action: Action, now: float) -> None:
        """What an action leaves in the journal when it has no effect on the world."""
        match action:
            case Tell():
                self.append(action.alert, now)
                self.append(ev.AlertDelivered(id=action.alert.id), now)
            case SetState():
                self.append(ev.StateChanged(state=action.state, reason=action.reason), now)
            case CloseAttempt():
                self.append(
                    ev.AttemptEnded(attempt=action.attempt, job_state=action.job_state, reason=action.reason),
                    now,
                )
            case _:
                pass

    def resume(self, now: float) -> None:
        """A person has resumed the run."""
        self.append(ev.StateChanged(state=RunState.PENDING, reason=f"{RESUMED} a person"), now)

    def _forget(self, now: float) -> None:
        """Drop what no decision looks at any more: exclusions expire, budgets count `history.failures` alone."""
        horizon = now - self.config.supervisor.blame_hours * 3600
        if sum(len(attempt.generations) for attempt in self.history.attempts) <= 4 * _KEPT:
            return

        def is_old(generation: GenerationHistory) -> bool:
            return generation.failed_at is None or generation.failed_at < horizon

        def cut(attempt: AttemptHistory) -> AttemptHistory:
            kept = tuple(item for item in attempt.generations[:-_KEPT] if not is_old(item))
            return replace(attempt, generations=kept + attempt.generations[-_KEPT:])

        attempts = tuple(cut(attempt) for attempt in self.history.attempts[-_KEPT_ATTEMPTS:])
        self.history = replace(self.history, attempts=attempts, faults=self.history.faults[-_KEPT_FAULTS:])
