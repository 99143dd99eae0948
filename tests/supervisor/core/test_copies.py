"""When a copy is due and when people are told: pure."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.copies.report import Report
from contract.copies.store import Trouble
from contract.copies.target import Kind
from contract.history import History
from contract.states import JobState, RunState, VerdictKind
from supervisor.core import copies
from supervisor.core.actions import Tell
from supervisor.core.case import Case
from supervisor.core.observation import CheckpointLook, JobLook, Observation
from supervisor.core.phrases import TROUBLES, word
from supervisor.core.verdict import Verdict
from tests.supervisor.conftest import config_of

LABELS = {"labels": {"ciuic.io/checkpoint-path": "s3://bucket/x"}}
NOW = 10_000.0
DONE = Report(where="s3://bucket/x/t/", newest=(20, 1, 1), copied_at=NOW - 60)


def case(
    report: Report | None, *, step: int = 20, now: float = NOW, state=RunState.RUNNING, **mirror
) -> Case:
    checkpoint = CheckpointLook(step=step, attempt=1, generation=1, path="")
    found = Observation(
        attempt=1,
        generation=1,
        job=JobLook(state=JobState.RUNNING),
        checkpoint=checkpoint if step else None,
        copies={} if report is None else {Kind.MIRROR: report},
    )
    return Case(
        history=History(run="t-1", state=state, state_at=NOW - 100),
        observation=found,
        verdict=Verdict(kind=VerdictKind.HEALTHY, reason=""),
        config=config_of(metadata=LABELS, mirror=mirror),
        now=now,
    )


@pytest.mark.parametrize(
    ("report", "step", "settings", "expected"),
    [
        (None, 0, {}, False),  # nothing to copy
        (None, 10, {}, True),  # nothing copied yet
        (DONE, 20, {}, False),
        (DONE, 30, {}, True),
        (DONE, 10, {}, True),  # rolled back: what is there does not count any more
        (DONE, 30, {"period_minutes": 2.0}, False),
        (DONE, 30, {"period_minutes": 0.5}, True),
        (replace(DONE, copied_at=NOW + 500), 30, {"period_minutes": 2.0}, True),  # the clock was set back
        (replace(DONE, tries=1, tried_at=NOW - 4), 30, {}, False),
        (replace(DONE, tries=1, tried_at=NOW - 6), 30, {}, True),
        (replace(DONE, tries=50, tried_at=NOW - 590), 30, {}, False),
        (replace(DONE, tries=50, tried_at=NOW - 601), 30, {}, True),
    ],
)
def test_due(report, step, settings, expected) -> None:
    assert copies.due(case(report, step=step, **settings)) == ((Kind.MIRROR,) if expected else ())


def test_a_run_that_is_over_waits_for_its_last_copy_but_not_for_ever() -> None:
    over = case(DONE, step=30, state=RunState.COMPLETED, period_minutes=600.0)
    assert copies.due(over) == (Kind.MIRROR,)
    assert copies.pending(over)
    assert not copies.pending(replace(over, now=NOW + copies.LINGER_S))
    assert not copies.pending(case(DONE, step=20, state=RunState.COMPLETED))


def test_told_once_with_its_cause_and_again_when_it_is_over() -> None:
    behind = replace(
        DONE,
        behind_since=NOW,
        trouble=Trouble.TIMEOUT,
        text="s3://bucket/x/t/: no answer within the time limit",
    )
    early = case(behind, step=30, now=NOW + 60)
    assert copies.tell(early) == ()
    late = case(behind, step=30, now=NOW + 31 * 60)
    (told,) = copies.tell(late)
    assert isinstance(told, Tell)
    assert told.alert.severity == "info"
    assert "太慢，超过时限" in told.alert.text["zh"]
    assert "no answer within the time limit" in told.alert.text["en"]
    assert "The newest there is step 20" in told.alert.text["en"]
    known = replace(late, history=replace(late.history, open_keys=frozenset({told.alert.key})))
    assert copies.tell(known) == ()
    back = replace(DONE, newest=(30, 1, 1), was_behind_since=NOW)
    over = case(back, step=30, now=NOW + 40 * 60)
    assert copies.tell(over) == ()  # nobody was told that it was behind
    over = replace(over, history=known.history)
    (clear,) = copies.tell(over)
    assert "caught up" in clear.alert.text["en"]
    keys = frozenset({told.alert.key, clear.alert.key})
    assert copies.tell(replace(over, history=replace(over.history, open_keys=keys))) == ()


@pytest.mark.parametrize("trouble", [item for item in Trouble if item is not Trouble.BEHIND])
def test_each_trouble_of_a_place_is_told_in_words(trouble) -> None:
    behind = replace(DONE, behind_since=NOW, trouble=trouble, text="what it said")
    (told,) = copies.tell(case(behind, step=30, now=NOW + 3600))
    for language in ("zh", "en"):
        words = word(TROUBLES, trouble, language)
        assert words in told.alert.text[language]
        assert "what it said" in told.alert.text[language]
    assert word(TROUBLES, trouble, "zh") != trouble


def test_a_place_that_is_only_slow_is_told_as_that() -> None:
    (told,) = copies.tell(case(replace(DONE, behind_since=NOW), step=30, now=NOW + 3600))
    assert "takes longer" in told.alert.text["en"]
    assert isinstance(told.alert, ev.AlertQueued)
