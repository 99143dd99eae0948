"""tests/scenarios/*.json: history and observation in, verdict and actions out; a second tick adds nothing.

A file has `config` (over the small one of these tests), `now`, `history` (events with their time as `at`),
`observation`, and `expect`: `verdict`, `reason` (a part of it), `suspects` and `actions`, one line each.

A file with a `base` (of tests/scenarios/bases) says only what is different: more `config` and `history`, and `looks`, one
after the other. `see` is what has changed since the last look: a node's name or `all` stands for its part of the
observation, with `worker` for its worker. What the actions did stays done.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from contract import events as ev
from contract.control import Control, Order
from contract.event_lines import KINDS
from contract.fold import apply
from contract.history import History
from contract.states import ControlPhase, JobState
from supervisor.core import actions as do
from supervisor.core import notices
from supervisor.core.decide import decide
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, Observation
from supervisor.core.recovery import news, recovered
from supervisor.core.unpack import observation_from
from supervisor.record import judgement, plain
from tests.supervisor.core.world import small_config

PLACE = Path(__file__).parents[2] / "scenarios"
FILES = sorted(PLACE.glob("*.json"))


def one_line(action: do.Action) -> str:  # noqa: PLR0911, PLR0912 - one line an action
    match action:
        case do.Submit():
            return f"submit {action.attempt}" + (
                f" without {','.join(action.exclude)}" if action.exclude else ""
            )
        case do.Prepare():
            return f"prepare {action.attempt}.{action.generation} on {','.join(action.members)}"
        case do.Go():
            return f"go {action.attempt}.{action.generation} at {action.master}:{action.port}"
        case do.TakeEvidence():
            return f"evidence {action.order}"
        case do.PassOn():
            return f"pass on {action.order or action.reason}"
        case do.SetBounds():
            jumped = "".join(f" without {start}-{end}" for start, end in action.skip_windows)
            return f"bounds {action.min_step}..{action.max_step}{jumped}"
        case do.SaveAndLeave():
            return f"save {action.attempt}"
        case do.Cancel():
            return f"cancel {action.attempt}" + (" by force" if action.force else "")
        case do.CloseAttempt():
            return f"close {action.attempt} {action.job_state}"
        case do.Reconfigure():
            return "reconfigure"
        case do.SetState():
            return f"state {action.state}"
        case do.Answer():
            return f"answer {action.request.kind} {'ok' if action.ok else 'not ok'}"
        case do.Tell():
            return f"tell {action.alert.severity} {action.alert.key}"
        case do.Wait():
            return "wait"


class Scenario:
    def __init__(self, value: dict) -> None:
        self.config = small_config(**value["config"])
        self.now = value["now"]
        self.observation = observation_from(value["observation"])
        self.history = History()
        self.seq, self.epoch = 0, 1
        for item in value["history"]:
            kind = KINDS[item["kind"]]
            fields = {key: tupled(part) for key, part in item.items() if key not in {"at", "kind", "epoch"}}
            self.epoch = item.get("epoch", 1)
            self.add(kind(**fields), item["at"])
        self.epoch = max(item.get("epoch", 1) for item in value["history"])

    def add(self, body: ev.Body, at: float | None = None) -> None:
        self.seq += 1
        event = ev.Event(seq=self.seq, time=self.now if at is None else at, epoch=self.epoch, body=body)
        self.history = apply(self.history, event)

    def tick(self):
        for body in news(self.history, self.observation):
            self.add(body)
        for body in notices.over(self.history, self.observation, self.config):
            self.add(body)
        verdict = judge(self.observation, self.history, self.config, self.now)
        if verdict.failed and not self.known_failure():
            self.add(judgement(self.observation, verdict))
        if notices.is_new(self.history, verdict):
            self.add(judgement(self.observation, verdict))
        found = recovered(self.history, self.observation, self.now)
        if found is not None:
            self.add(found)
        return verdict, decide(self.history, self.observation, verdict, self.config, self.now)

    def known_failure(self) -> bool:
        at = (self.observation.attempt, self.observation.generation)
        return any(
            generation.failure
            for attempt in self.history.attempts
            for generation in attempt.generations
            if (attempt.number, generation.number) == at
        )

    def ordered(self, action: do.TakeEvidence | do.PassOn) -> None:
        control = self.observation.control
        assert control is not None
        if isinstance(action, do.PassOn):
            attempt, generation = control.at
            asked = {"attempt": attempt, "generation": generation, "reason": action.reason}
            self.add(ev.ProfileAsked(order=action.order, **asked))
        kept = (*control.orders, Order(id=action.order, kind=action.kind))
        self.observation = replace(self.observation, control=replace(control, orders=kept))

    def done(self, action: do.Action) -> None:
        """The world after this action's effect."""
        match action:
            case do.Submit():
                self.add(ev.AttemptIntended(attempt=action.attempt, tag="t", reason=action.reason))
                self.add(ev.AttemptSubmitted(attempt=action.attempt, job_id="78"))
                self.observation = Observation(
                    attempt=action.attempt,
                    generation=1,
                    job=JobLook(state=JobState.PENDING, job_id="78"),
                    control=Control(attempt=action.attempt, generation=1, phase=ControlPhase.PREPARE),
                )
            case do.Prepare():
                self.add(
                    ev.GenerationIntended(
                        attempt=action.attempt,
                        generation=action.generation,
                        members=action.members,
                        reason=action.reason,
                    )
                )
                self.told(ControlPhase.PREPARE, action.generation, action.members)
            case do.Go():
                self.told(ControlPhase.GO, action.generation, action.members)
            case do.TakeEvidence() | do.PassOn():
                self.ordered(action)
            case do.SetBounds():
                self.add(ev.BoundsSet(**vars(action)))
            case do.SaveAndLeave():
                self.told(ControlPhase.SAVE, self.observation.generation, self.observation.members)
            case do.Cancel():
                self.add(ev.CancelIntended(attempt=action.attempt, reason=action.reason))
            case do.CloseAttempt():
                self.add(
                    ev.AttemptEnded(attempt=action.attempt, job_state=action.job_state, reason=action.reason)
                )
            case do.SetState():
                self.add(ev.StateChanged(state=action.state, reason=action.reason))
            case do.Answer():
                left = tuple(item for item in self.observation.requests if item != action.request)
                self.observation = replace(self.observation, requests=left)
            case do.Tell():
                self.add(action.alert)
            case do.Wait():
                pass

    def told(self, phase: ControlPhase, generation: int, members: tuple[str, ...]) -> None:
        control = Control(
            attempt=self.observation.attempt, generation=generation, phase=phase, members=members
        )
        same = generation == self.observation.generation
        self.observation = replace(
            self.observation,
            control=control,
            generation=generation,
            members=members,
            exits=self.observation.exits if same else (),
            watched_s=self.observation.watched_s if same else 0.0,
            resume_step=self.observation.resume_step if same else None,
        )


def tupled(value):
    return tuple(tupled(item) for item in value) if isinstance(value, list) else value


def merged(old, new):
    """`new` over `old`, table by table."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def changed(observation: Observation, see: dict) -> Observation:
    """The observation with what this look sees otherwise."""
    value = plain(observation)
    names = {item["node"] for item in value["nodes"]}
    value = merged(value, {key: part for key, part in see.items() if key not in {*names, "all"}})
    for item in value["nodes"]:
        for part in (see.get("all", {}), see.get(item["node"], {})):
            new = merged(item, {key: inner for key, inner in part.items() if key != "worker"})
            if part.get("worker"):
                new["beat"]["workers"] = [merged(new["beat"]["workers"][0], part["worker"])]
            item.update(new)
    return observation_from(value)


def whole(value: dict) -> dict:
    """A file that says everything: `base` and its differences put together."""
    if "base" not in value:
        return {**value, "looks": [{"expect": value["expect"]}]}
    base = json.loads((PLACE / "bases" / f"{value['base']}.json").read_text())
    more = value.get("history", [])
    config = merged(base["config"], value.get("config", {}))
    return {**base, **value, "config": config, "history": base["history"] + more}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    value = whole(json.loads(path.read_text()))
    scenario = Scenario(value)
    for number, look in enumerate(value["looks"], start=1):
        scenario.now += look.get("after_s", 0.0)
        scenario.observation = changed(scenario.observation, look.get("see", {}))
        verdict, actions = scenario.tick()
        found = {
            "verdict": verdict.kind,
            "cause": verdict.cause,
            "suspects": list(verdict.suspects),
            "actions": [one_line(action) for action in actions if not isinstance(action, do.Wait)],
        }
        expect = {"cause": "none", "suspects": [], "actions": [], "reason": "", **look["expect"]}
        expect["actions"] = [line for line in expect["actions"] if line != "wait"]
        assert found == {key: expect[key] for key in found}, f"look {number}: {verdict.reason}"
        assert expect["reason"] in verdict.reason, f"look {number}"
        for action in actions:
            scenario.done(action)
        again = [one_line(action) for action in scenario.tick()[1] if not isinstance(action, do.Wait)]
        assert again == expect.get("then", []), f"look {number}, on an unchanged world"


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 60
