"""Tables for people: rich on a terminal, plain columns elsewhere."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from supervisor.adapters.leadership import Holder
from supervisor.core.phrases import COPIES, TROUBLES, word
from supervisor.core.reasons import chinese
from supervisor.core.text import duration, one_line
from supervisor.trend import Trend, sparkline
from supervisor.words import ORDER, command_name, state_label, state_style, text

Facts = Mapping[str, Any]
_FEW_RANKS = 16
_MOST_RANGES = 12
_LINE_BYTES = 2000


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Titles and rows: a table on a terminal, plain columns elsewhere."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]


Part = Text | Grid


def show_runs(rows: Sequence[Facts], root: Path, holder: Holder | None, lang: str) -> None:
    """All runs, those that need a person first."""
    _show(_console(), _runs(rows, root, lang))
    Console(stderr=True, highlight=False, soft_wrap=True).print(_watcher(root, holder, lang))


def show_run(facts: Facts, trend: Trend | None, lang: str, unwatched_s: float | None) -> None:
    """One run: its line, its curve, its attempts, its ranks."""
    _show(_console(), _run(facts, trend, lang, unwatched_s))


def runs_view(rows: Sequence[Facts], root: Path, holder: Holder | None, lang: str) -> Group:
    """The same as `show_runs`, for a display that is drawn again and again."""
    return _group([*_runs(rows, root, lang), Text(_watcher(root, holder, lang), style="dim")])


def run_view(facts: Facts, trend: Trend | None, lang: str, unwatched_s: float | None) -> Group:
    """The same as `show_run`, for a display that is drawn again and again."""
    return _group(_run(facts, trend, lang, unwatched_s))


def console_for_live() -> Console:
    """Where such a display is drawn."""
    return Console(highlight=False)


def _runs(rows: Sequence[Facts], root: Path, lang: str) -> list[Part]:
    if not rows:
        return [Text(text("none", lang, place=root))]
    titles = [text(key, lang) for key in ("run", "state", "step", "checkpoint", "alert-column", "reason")]
    ordered = sorted(rows, key=lambda row: (ORDER.index(row["state"]), row["run"]))
    return [Grid(titles=titles, rows=[_run_cells(row, lang) for row in ordered])]


def _watcher(root: Path, holder: Holder | None, lang: str) -> str:
    if holder:
        return text("watching", lang, pid=holder.pid, host=holder.host, since=_moment(holder.since))
    return text("unwatched", lang, place=root, ciuic=command_name(), quoted=shlex.quote(str(root)))


def _run(facts: Facts, trend: Trend | None, lang: str, unwatched_s: float | None) -> list[Part]:
    parts: list[Part] = [
        Text(f"{facts['run']}  ")
        + Text(state_label(facts["state"], lang), style=state_style(facts["state"])),
        *_stale(unwatched_s, lang),
        Text(f"{text('reason', lang)}{': ' if lang == 'en' else '：'}{facts['reason']}"),
        Text(f"{text('step', lang)}: {_step(facts)}   {text('checkpoint', lang)}: {_checkpoint(facts)}"),
    ]
    if facts["save_problem"]:
        parts.append(Text(text("unsaved", lang, why=facts["save_problem"]), style="red"))
    parts += [Text(line, style="red") for line in queue_lines(facts, lang)]
    parts += _trend(trend, lang)
    if facts["observe_only"]:
        parts.append(Text(text("observed", lang), style="yellow"))
    for problem in facts["journal_problems"]:
        parts.append(Text(text("damaged", lang, what=problem), style="yellow"))
    for copy in facts["copies"]:
        parts.append(Text(_copy_line(copy, lang), style="yellow" if copy["trouble"] else ""))
    alerts = facts["alerts"]
    counts = text("alert-counts", lang, **{key: alerts[key] for key in ("sent", "pending", "failed")})
    parts.append(Text(f"{text('alerts', lang)}: {counts}"))
    parts += [Text(line, style="yellow") for line in alert_notes(alerts, lang)]
    if alerts.get("problem"):
        parts.append(Text(text("no-alerts", lang, why=alerts["problem"]), style="yellow"))
    titles = [text(key, lang) for key in ("attempt", "job", "nodes", "generations", "reason")]
    parts.append(Grid(titles=titles, rows=[_attempt_cells(item) for item in facts["attempts"]]))
    parts.append(_ranks(facts["ranks"], lang))
    return parts


def queue_lines(facts: Facts, lang: str) -> list[str]:
    """That the supervisor cannot ask the queue, since when, why, and what that holds up."""
    found = facts.get("queue_problem")
    if not found:
        return []
    reason = chinese(found["reason"], {}) if lang == "zh" else found["reason"]
    return [text("queue-silent", lang, at=_moment(found["since"]), why=reason)]


def _stale(unwatched_s: float | None, lang: str) -> list[Text]:
    if unwatched_s is None:
        return []
    return [Text(text("stale", lang, age=duration(unwatched_s, lang)), style="yellow")]


def _trend(trend: Trend | None, lang: str) -> list[Part]:
    """Loss and throughput of the newest steps as bars, with their newest values."""
    if trend is None:
        return []
    over = text("over-steps", lang, first=trend.first, last=trend.last)
    found = (
        (text("loss", lang), trend.loss, ".4f"),
        (text("tokens-per-s", lang), trend.tokens_per_s, ",.0f"),
    )
    return [
        Text(f"{title}: ") + Text(sparkline(values), style="cyan") + Text(f" {values[-1]:{shape}}  {over}")
        for title, values, shape in found
        if values
    ]


def _ranks(ranks: Sequence[Facts], lang: str) -> Grid:
    """Every rank while they are few; else how many stand where, the fewest first: they are the odd ones."""
    if len(ranks) <= _FEW_RANKS:
        titles = [text(key, lang) for key in ("rank", "node", "phase", "step")]
        rows = [[_plain(item[key]) for key in ("rank", "node", "phase", "step")] for item in ranks]
        return Grid(titles=titles, rows=rows)
    groups: dict[tuple[str, int], list[int]] = {}
    for item in ranks:
        groups.setdefault((item["phase"], item["step"]), []).append(item["rank"])
    titles = [text(key, lang) for key in ("phase", "step", "count", "rank")]
    return Grid(
        titles=titles,
        rows=[
            [_plain(phase), _plain(step), _plain(len(found)), _plain(_ranges(found))]
            for (phase, step), found in sorted(groups.items(), key=lambda pair: len(pair[1]))
        ],
    )


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 7, 9-12; cut after a dozen."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs[:_MOST_RANGES])
    return shown + (" …" if len(runs) > _MOST_RANGES else "")


def _copy_line(copy: Facts, lang: str) -> str:
    """One place: what is there, and why it is not more."""
    kind = word(COPIES, copy["kind"], lang)
    step = "-" if copy["step"] is None else copy["step"]
    line = text("copy", lang, kind=kind, step=step, where=copy["where"])
    if copy["behind_s"]:
        line += "; " + text("copy-behind", lang, age=duration(copy["behind_s"], lang))
    if copy["sending"]:
        sent, of = (copy["sending"][key] / 1e6 for key in ("bytes", "of"))
        line += f" ({sent:.0f}/{of:.0f} MB)"
    if copy["trouble"]:
        line += f"; {word(TROUBLES, copy['trouble'], lang)}: {copy['reason']}"
    return line


def show_checkpoints(rows: Sequence[Facts], lang: str) -> None:
    """What is there, newest first."""
    console = _console()
    if not rows:
        console.print(text("no-checkpoints", lang))
        return
    titles = [
        text(key, lang) for key in ("where", "step", "attempt", "size", "age", "val_loss", "valid", "reason")
    ]
    cells = [
        [
            Text(text(row["where"], lang)),
            Text(str(row["step"])),
            Text(f"{row['attempt']}.{row['generation']}"),
            Text("" if row.get("bytes") is None else byte_count(row["bytes"])),
            Text("" if row.get("age_s") is None else duration(row["age_s"], lang)),
            Text("" if row.get("val_loss") is None else f"{row['val_loss']:.4f}"),
            Text("✔" if row["valid"] else "✘", style="green" if row["valid"] else "red"),
            Text(row["reason"]),
        ]
        for row in rows
    ]
    _table(console, titles, cells)


def byte_count(number: int) -> str:
    """`1.2 GB`: three figures are enough to compare checkpoints."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def show_unreadable(places: Sequence[Facts], lang: str) -> None:
    """Places whose copies could not be listed, and why."""
    for place in places:
        why = f"{word(TROUBLES, place['trouble'], lang)}: {place['reason']}"
        line = text("unreadable", lang, where=word(COPIES, place["where"], lang), why=why)
        _show(_console(), [Text(line, style="yellow")])


def _run_cells(row: Facts, lang: str) -> list[Text]:
    alerts = row.get("alerts", {})
    return [
        Text(row["run"]),
        Text(state_label(row["state"], lang), style=state_style(row["state"])),
        Text(_step(row)),
        Text(_checkpoint(row)),
        Text("/".join(str(alerts.get(key, 0)) for key in ("sent", "pending", "failed"))),
        Text(
            ("；" if lang == "zh" else "; ").join(
                [str(row["reason"]), *queue_lines(row, lang), *alert_notes(alerts, lang)]
            )
        ),
    ]


def alert_notes(alerts: Facts, lang: str) -> list[str]:
    """Who knows of the incident, who silenced the run."""
    found = []
    if known := alerts.get("acknowledged"):
        found.append(text("acknowledged", lang, by=known["by"], at=_moment(known["at"])))
    if quiet := alerts.get("silenced"):
        found.append(text("silenced", lang, by=quiet["by"], until=_moment(quiet["until"])))
    if waits := alerts.get("held_back"):
        wait = duration(max(0.0, waits["until"] - time.time()), lang)
        found.append(text("held-back", lang, why=waits["reason"], wait=wait))
    return found


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _attempt_cells(item: Facts) -> list[Text]:
    generations = item["generations"]
    reason = str(generations[-1].get("reason") or "") if generations else ""
    cells = [item["number"], item["job_id"], ",".join(item["nodes"]), len(generations), reason]
    return [_plain(cell) for cell in cells]


def _plain(value: object) -> Text:
    return Text("" if value is None else str(value))


def _step(facts: Facts) -> str:
    step, target = facts.get("step"), facts.get("target_step")
    shown = "-" if step is None or step < 0 else str(step)
    return f"{shown}/{target}" if target else shown


def _checkpoint(facts: Facts) -> str:
    newest = facts.get("newest_checkpoint")
    return str(newest["step"]) if newest else "-"


def _console() -> Console:
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def _table(console: Console, titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    _show(console, [Grid(titles=titles, rows=rows)])


def _show(console: Console, parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, Text):
            console.print(_flat(part))
        elif part.rows and console.is_terminal:
            console.print(_rich(part))
        elif part.rows:
            _columns(console, part)


def _group(parts: Sequence[Part]) -> Group:
    return Group(*(_flat(part) if isinstance(part, Text) else _rich(part) for part in parts))


def _flat(part: Text) -> Text:
    """One line, whatever was said in several (sbatch's errors, exceptions)."""
    several = len(part.plain.splitlines()) > 1
    return Text(one_line(part.plain, _LINE_BYTES), style=part.style) if several else part


def _rich(grid: Grid) -> Table:
    table = Table(*grid.titles, box=None, header_style="bold", pad_edge=False)
    for row in grid.rows:
        table.add_row(*map(_flat, row))
    return table


def _columns(console: Console, grid: Grid) -> None:
    cells = [[Text(title) for title in grid.titles], *([_flat(cell) for cell in row] for row in grid.rows)]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [cell.plain + " " * (width - cell.cell_len) for cell, width in zip(row, widths, strict=True)]
        console.print("  ".join(padded).rstrip(), markup=False)
