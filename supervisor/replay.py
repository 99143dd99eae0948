"""A recorded journal, judged again: the same functions on the same observations must come to the same verdicts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from contract.config import RunConfig
from contract.events import Event, Judged
from contract.fold import apply
from contract.history import History
from supervisor.core.judge import judge
from supervisor.core.unpack import observation_from
from supervisor.core.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One verdict of the journal beside the one that its observation gives today."""

    seq: int
    recorded: Judged
    again: Verdict

    @property
    def same(self) -> bool:
        """Kind, cause, step and suspects agree; the sentence may have changed since.

        An observation that was shortened for the journal does not hold every suspect: those that it holds must agree.
        """
        recorded, again = self.recorded, self.again
        kept = recorded.observation
        shortened = kept.get("nodes_in_all", 0) > len(kept.get("nodes", ()))
        suspects = recorded.suspects == again.suspects or (
            shortened and bool(again.suspects) and set(again.suspects) <= set(recorded.suspects)
        )
        return suspects and (recorded.verdict, recorded.cause, recorded.step) == (
            again.kind.value,
            again.cause.value,
            again.step,
        )

    def facts(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seq": self.seq,
            "attempt": self.recorded.attempt,
            "generation": self.recorded.generation,
            "recorded": {
                "verdict": self.recorded.verdict,
                "cause": self.recorded.cause,
                "reason": self.recorded.reason,
            },
            "again": {
                "verdict": self.again.kind.value,
                "cause": self.again.cause.value,
                "reason": self.again.reason,
            },
            "same": self.same,
        }


def replay(events: Iterable[Event], config: RunConfig) -> list[Replayed]:
    """Every verdict that the journal recorded with its observation, judged again with what was known before it."""
    history, found = History(), []
    for event in events:
        body = event.body
        if isinstance(body, Judged) and body.observation and event.epoch >= history.epoch:
            again = judge(observation_from(body.observation), history, config, event.time)
            found.append(Replayed(seq=event.seq, recorded=body, again=again))
        history = apply(history, event)
    return found
