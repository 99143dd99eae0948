"""The life of a run in four lanes: jobs, what the workers did, verdicts, checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from contract.states import RunState
from supervisor.core.phrases import CAUSES, word
from supervisor.report.charts import HEIGHT, WIDTH, Scale, block, lanes, ticks
from supervisor.report.html import Markup, el, join
from supervisor.report.words import say

Facts = Mapping[str, Any]
PHASES = ("queue", "start", "train", "stalled", "restart")
_LANE = HEIGHT / 4
_LABELS = 6


def timeline(facts: Facts, language: str) -> Markup:
    """The lanes, over time. Nothing before the first attempt."""
    attempts = facts["attempts"]
    if not attempts:
        return Markup("")
    begin, end = _span(facts)
    across = Scale(low=begin, high=max(end, begin + 1e-3), size=WIDTH)
    jobs = [
        block(
            across.at(attempt["intended_at"]),
            across.at(attempt["ended_at"] or end),
            _LANE,
            "job",
            f"{say('attempt', language)} {attempt['number']}, {say('job', language)} {attempt['job_id']}: {attempt['reason']}",
        )
        for attempt in attempts
    ]
    work = [
        block(across.at(start), across.at(stop), _LANE, phase, f"{hint}: {say('phase-' + phase, language)}")
        for attempt in attempts
        for phase, start, stop, hint in stretches(attempt, end)
        if stop > start
    ]
    verdicts = [
        block(
            across.at(item["failed_at"]) - 0.3,
            across.at(item["failed_at"]) + 0.6,
            _LANE,
            "verdict",
            _told(item, language),
        )
        for attempt in attempts
        for item in attempt["generations"]
        if item["failed_at"] is not None
    ]
    saved = ticks([across.at(item["at"]) for item in facts["checkpoints"]], _LANE, "saved")
    rows = (
        (say("lane-jobs", language), join(*jobs)),
        (say("lane-workers", language), join(*work)),
        (say("lane-verdicts", language), join(*verdicts)),
        (say("lane-checkpoints", language), saved),
    )
    keys = join(*(el("span", say(f"phase-{phase}", language), class_=f"key {phase}") for phase in PHASES))
    return el("div", lanes(rows, _labels(across), keys), class_="life")


def _span(facts: Facts) -> tuple[float, float]:
    final = RunState(facts["state"]).final
    ends = [attempt["ended_at"] for attempt in facts["attempts"] if attempt["ended_at"]]
    last = max([facts["state_at"] or 0.0, *ends]) if final else facts["made_at"]
    return facts["created_at"] or facts["attempts"][0]["intended_at"], last


def stretches(attempt: Facts, end: float) -> Iterator[tuple[str, float, float, str]]:
    """(phase, from, to, generation) of one attempt's generations; what goes on lasts to `end`."""
    over = attempt["ended_at"] or end
    generations: Sequence[Facts] = attempt["generations"]
    first = generations[0]["went_at"] if generations else None
    if attempt["submitted_at"] is not None:
        yield "queue", attempt["submitted_at"], first or over, str(attempt["number"])
    for number, item in enumerate(generations):
        name = f"{attempt['number']}.{item['number']}"
        following = generations[number + 1] if number + 1 < len(generations) else None
        until = (following["intended_at"] or following["went_at"]) if following else None
        stop = item["failed_at"] or until or over
        went, resumed = item["went_at"], item["resumed_at"]
        noticed = max(resumed or went or stop, stop - (item["detected_s"] or 0.0))
        if went is not None:
            yield "start", went, resumed or stop, name
        if resumed is not None:
            yield "train", resumed, noticed, name
        if item["failed_at"] is not None:
            yield "stalled", noticed, stop, name
            yield "restart", stop, (following["went_at"] if following else None) or over, name


def _told(item: Facts, language: str) -> str:
    return f"{item['verdict']} ({word(CAUSES, item['cause'], language)}): {item['failure']}"


def _labels(across: Scale) -> list[tuple[float, str]]:
    """Moments at even distances, with the date when the run is long."""
    length = across.high - across.low
    shape = "%m-%d %H:%M" if length > 86_400 else "%H:%M" if length > 3600 else "%H:%M:%S"
    places = [across.low + length * part / _LABELS for part in range(1, _LABELS)]
    return [(across.at(at), datetime.fromtimestamp(at, UTC).strftime(shape)) for at in places]
