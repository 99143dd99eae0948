"""The report as a page, from its facts. No script, nothing fetched; the facts lie in it as JSON for programs."""

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from contract.states import RunState
from supervisor.core.phrases import CAUSES, STATES, word
from supervisor.core.text import duration
from supervisor.report.charts import Line, Scale, line_chart
from supervisor.report.html import Markup, el, join
from supervisor.report.timeline import timeline
from supervisor.report.words import say

Facts = Mapping[str, Any]
_MOST_ROWS = 1000
_MOST_OPEN = 50
_LOOKS = {"completed": "ok", "running": "ok", "failed": "bad", "recovering": "acting"}
# No script, no connection, whatever text has found its way in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(facts: Facts, language: str) -> str:
    """A whole HTML document."""
    title = f"{say('report', language)}: {facts['run']}"
    head = (
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width,initial-scale=1">'),
        el("title", title),
        el("style", Markup(files("supervisor.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = (
        _header(facts, language),
        _tiles(facts, language),
        el("p", say("definition", language), class_="dim"),
        el("h2", say("life", language)),
        timeline(facts, language),
        _charts(facts, language),
        _lost(facts, language),
        _faults(facts, language),
        _starts(facts, language),
        _notices(facts, language),
        _batch_changes(facts, language),
        _profiles(facts, language),
        _checkpoints(facts, language),
        el("p", say("alerts", language, **{k: facts["alerts"][k] for k in ("sent", "pending", "failed")})),
        Markup(f'<script type="application/json" id="facts">{_data(facts)}</script>'),
    )
    document = el("html", el("head", *head), el("body", *body), lang="zh-CN" if language == "zh" else "en")
    return f"<!doctype html>\n{document}\n"


def _data(facts: Facts) -> str:
    """JSON that no HTML parser can take for an end of the element."""
    return json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")


def _header(facts: Facts, language: str) -> Markup:
    state = el(
        "span", word(STATES, facts["state"], language), class_=f"state {_LOOKS.get(facts['state'], '')}"
    )
    made = say("made", language, at=moment(facts["made_at"]), version=facts["made_by"])
    labels = ", ".join(f"{key}={value}" for key, value in facts["labels"].items())
    return el(
        "header",
        el("h1", facts["run"]),
        el("p", state, " ", facts["reason"]),
        el("p", f"{moment(facts['created_at'])} – {moment(_end(facts))}; {made}", class_="dim"),
        el("p", labels, class_="dim") if labels else None,
        *(el("p", problem, class_="state bad") for problem in facts["journal_problems"]),
    )


def _tiles(facts: Facts, language: str) -> Markup:
    time, faults = facts["effective_time"], facts["faults"]
    starts = [item for attempt in facts["attempts"] for item in attempt["generations"]]
    steps = "-" if facts["step"] is None else f"{facts['step']:,}"
    if facts["target_step"]:
        steps += f" / {facts['target_step']:,}"
    found = (
        (steps, "steps"),
        ("-" if time["ratio"] is None else f"{time['ratio']:.2%}", "effective"),
        (seconds(time["elapsed_s"], language), "elapsed"),
        (seconds(time["lost_s"], language), "lost"),
        (seconds(time["queue_s"], language), "queue"),
        (len(faults), "faults"),
        (len(facts["attempts"]), "jobs"),
        (len(starts), "starts"),
        (_median(faults, "detection_s", language), "median-detection"),
        (_median(faults, "restart_s", language), "median-restart"),
        (seconds(_longest(starts, facts), language), "longest"),
    )
    return el(
        "div",
        *(el("div", el("b", value), el("span", say(key, language))) for value, key in found),
        class_="tiles",
    )


def _median(faults: Sequence[Facts], key: str, language: str) -> str:
    return seconds(statistics.median(item[key] for item in faults) if faults else None, language)


def _longest(starts: Sequence[Facts], facts: Facts) -> float | None:
    """The longest training of one generation: to its failure, of the newest to now."""
    spans = [
        end - item["resumed_at"]
        for item in starts
        if item["resumed_at"] is not None
        and (end := item["failed_at"] or (_end(facts) if item is starts[-1] else None)) is not None
    ]
    return max(spans, default=None)


def _end(facts: Facts) -> float | None:
    """When the run was over, or when we looked."""
    at: float | None = facts["state_at"] if RunState(facts["state"]).final else facts["made_at"]
    return at


def _charts(facts: Facts, language: str) -> Markup:
    metrics = facts["metrics"]
    series = metrics["series"]
    if not series:
        return el("p", say("no-metrics", language))
    last = max(max(item["step"]) for item in series.values())
    across = Scale(low=0, high=max(last, 1), size=1000)
    resumes = [
        item["first_step"]
        for attempt in facts["attempts"]
        for item in attempt["generations"]
        if item["first_step"]
    ]
    broken = [item["step"] for item in metrics["not_finite"]]

    def chart(key: str, *lines: tuple[str, str, str], zero: bool = False) -> Markup:
        drawn = [
            Line(
                label=say(label, language) if label else "",
                style=style,
                series=metrics["done_again"] if name == "done_again" else series.get(name, {}),
            )
            for name, style, label in lines
        ]
        marks = broken if key == "loss" else ()
        return line_chart(say(key, language), drawn, across, resumes=resumes, broken=marks, zero=zero)

    count = sum(item["count"] for item in metrics["not_finite"])
    buckets = say("buckets", language, rows=f"{metrics['rows']:,}", width=metrics["steps_in_bucket"])
    return join(
        chart(
            "loss",
            ("done_again", "again", "loss-again"),
            ("loss", "one", "loss-train"),
            ("val_loss", "two", "loss-validation"),
        ),
        chart("norm", ("grad_norm", "one", "")),
        chart("rate", ("lr_embedding", "two", "rate-first"), ("lr", "one", "rate-last"), zero=True),
        chart("throughput", ("tokens_per_s", "one", ""), zero=True),
        chart("batch", ("global_batch", "one", ""), zero=True),
        chart("micro", ("micro_steps", "one", ""), zero=True),
        el("p", buckets, class_="dim"),
        el("p", say("not-finite", language, count=count), class_="dim") if count else None,
        el("p", say("dropped", language, count=metrics["dropped_steps"]), class_="dim")
        if metrics["dropped_steps"]
        else None,
    )


def _lost(facts: Facts, language: str) -> Markup:
    rows = facts["lost_time"]
    time = facts["effective_time"]
    columns = ("detection_s", "restart_s", "repeated_s", "queue_s")
    cells = [
        [
            word(CAUSES, row["cause"], language),
            row["faults"],
            *(seconds(row[key], language) for key in columns),
        ]
        for row in rows
    ]
    cells.append(
        [say("sum", language), len(facts["faults"]), *(seconds(time[key], language) for key in columns)]
    )
    titles = ("cause", "faults", "detection", "restart", "repeated", "queue")
    return _table("lost-by-cause", titles, cells, language, numbers=range(1, 6))


def _faults(facts: Facts, language: str) -> Markup:
    why = {
        (attempt["number"], item["number"]): item
        for attempt in facts["attempts"]
        for item in attempt["generations"]
    }
    cells = []
    for fault in facts["faults"]:
        failed = why.get(tuple(fault["failed"]), {})
        cells.append(
            [
                moment(fault["at"]),
                word(CAUSES, fault["cause"], language),
                fault["step"],
                seconds(fault["detection_s"], language),
                seconds(fault["restart_s"], language),
                fault["repeated_steps"],
                failed.get("failure") or "",
            ]
        )
    titles = ("time", "cause", "step", "detection", "restart", "repeated", "reason")
    return _table("all-faults", titles, cells, language, numbers=range(2, 6), text=6)


def _starts(facts: Facts, language: str) -> Markup:
    cells = []
    for attempt in facts["attempts"]:
        for item in attempt["generations"] or [{}]:
            verdict = " ".join(
                filter(None, (item.get("verdict"), word(CAUSES, item.get("cause") or "", language)))
            )
            cells.append(
                [
                    f"{attempt['number']}.{item.get('number', '-')}",
                    attempt["job_id"],
                    ", ".join(item.get("nodes", [])),
                    item.get("first_step"),
                    item.get("failed_step"),
                    verdict,
                    _why(attempt, item, language),
                ]
            )
    titles = ("attempt", "job", "nodes", "from-step", "to-step", "verdict", "reason")
    return _table("all-starts", titles, cells, language, numbers=range(3, 5), text=6)


def _why(attempt: Facts, item: Facts, language: str) -> Markup:
    """Why it was started, why it failed, and what is known about that."""
    started = item.get("reason") or (attempt["reason"] if item.get("number", 1) == 1 else "")
    lines = [*item.get("digest", {}).get(language, "").splitlines(), *item.get("lines", [])]
    return join(
        el("div", started, class_="dim") if started else None,
        el("div", item["failure"]) if item.get("failure") else None,
        el("div", attempt["end_reason"], class_="dim")
        if attempt["end_reason"] and item in attempt["generations"][-1:]
        else None,
        el("details", el("summary", say("lines", language)), el("pre", "\n".join(lines))) if lines else None,
        el("small", f"{say('evidence', language)}: {item['evidence']}") if item.get("evidence") else None,
    )


def _notices(facts: Facts, language: str) -> Markup:
    cells = [
        [moment(item["at"]), word(CAUSES, item["cause"], language), item["step"], item["reason"]]
        for item in facts["notices"]
    ]
    return _table(
        "notices", ("time", "cause", "step", "reason"), cells, language, numbers=range(2, 3), text=3
    )


def _batch_changes(facts: Facts, language: str) -> Markup:
    cells = [[item["step"], item["reason"]] for item in facts["metrics"]["batch_changes"]]
    return _table("batch-changes", ("step", "reason"), cells, language, numbers=range(1), text=1)


def _profiles(facts: Facts, language: str) -> Markup:
    cells = [
        [
            moment(item["at"]),
            item["first_step"],
            join(
                *(el("div", line) for line in item["digest"].get(language, "").splitlines()),
                el("small", item["path"]),
            ),
        ]
        for item in facts["profiles"]
    ]
    return _table(
        "profiles", ("time", "step", "where-time-went"), cells, language, numbers=range(1, 2), text=2
    )


def _checkpoints(facts: Facts, language: str) -> Markup:
    cells = [
        [moment(item["at"]), item["step"], f"{item['attempt']}.{item['generation']}"]
        for item in facts["checkpoints"]
    ]
    return _table("saved", ("time", "step", "attempt"), cells, language, numbers=range(1, 2), folded=True)


def _table(
    key: str,
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    language: str,
    *,
    numbers: range = range(0),
    text: int = -1,
    folded: bool = False,
) -> Markup:
    """A section with a table: the newest rows, and how many are left out. Nothing where there are none."""
    if not rows:
        return Markup("")

    def look(column: int) -> str:
        return "n" if column in numbers else "t" if column == text else "w" if column == 0 else ""

    head = el("tr", *(el("th", say(title, language), class_=look(at)) for at, title in enumerate(titles)))
    shown = [
        el("tr", *(el("td", "" if cell is None else cell, class_=look(at)) for at, cell in enumerate(row)))
        for row in rows[-_MOST_ROWS:]
    ]
    kind = "sentences" if text >= 0 else "figures"
    table = el("div", el("table", el("thead", head), el("tbody", *shown), class_=kind), class_="scroll")
    left_out = len(rows) - len(shown)
    more = el("p", say("cut", language, count=left_out), class_="dim") if left_out else None
    if folded or len(rows) > _MOST_OPEN:
        table = el("details", el("summary", f"{len(rows):,}"), table)
    return join(el("h2", say(key, language)), more, table)


def moment(at: float | None) -> str:
    """A time for people, UTC; "-" when unknown."""
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: float | None, language: str) -> str:
    """A length of time; "-" when unknown."""
    if value is None:
        return "-"
    if 0 < value < 10:
        return f"{value:.2f} {'秒' if language == 'zh' else 's'}"
    return duration(value, language)
