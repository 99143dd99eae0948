"""Tables for people: rich on a terminal, plain columns elsewhere."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from supervisor.adapters.leadership import Holder
from supervisor.core.phrases import COPIES, TROUBLES, word
from supervisor.core.text import duration
from supervisor.words import ORDER, command_name, state_label, state_style, text

Facts = Mapping[str, Any]


def show_runs(rows: Sequence[Facts], root: Path, holder: Holder | None, lang: str) -> None:
    """All runs, those that need a person first."""
    console = _console()
    if not rows:
        console.print(text("none", lang, place=root))
    else:
        titles = [text(key, lang) for key in ("run", "state", "step", "checkpoint", "alert-column", "reason")]
        ordered = sorted(rows, key=lambda row: (ORDER.index(row["state"]), row["run"]))
        _table(console, titles, [_run_cells(row, lang) for row in ordered])
    line = (
        text("watching", lang, who=holder)
        if holder
        else text("unwatched", lang, place=root, ciuic=command_name(), quoted=shlex.quote(str(root)))
    )
    Console(stderr=True, highlight=False, soft_wrap=True).print(line)


def show_run(facts: Facts, lang: str, unwatched_s: float | None) -> None:
    """One run: its line, its attempts, its ranks."""
    console = _console()
    head = Text(f"{facts['run']}  ") + Text(
        state_label(facts["state"], lang), style=state_style(facts["state"])
    )
    console.print(head)
    if unwatched_s is not None:
        console.print(Text(text("stale", lang, age=duration(unwatched_s, lang)), style="yellow"))
    console.print(f"{text('reason', lang)}: {facts['reason']}")
    console.print(f"{text('step', lang)}: {_step(facts)}   {text('checkpoint', lang)}: {_checkpoint(facts)}")
    if facts["save_problem"]:
        console.print(Text(text("unsaved", lang, why=facts["save_problem"]), style="red"))
    if facts["observe_only"]:
        console.print(Text(text("observed", lang), style="yellow"))
    for problem in facts["journal_problems"]:
        console.print(Text(text("damaged", lang, what=problem), style="yellow"))
    for copy in facts["copies"]:
        console.print(Text(_copy_line(copy, lang), style="yellow" if copy["trouble"] else ""))
    alerts = facts["alerts"]
    counts = text("alert-counts", lang, **{key: alerts[key] for key in ("sent", "pending", "failed")})
    console.print(f"{text('alerts', lang)}: {counts}")
    for line in _alert_notes(alerts, lang):
        console.print(Text(line, style="yellow"))
    if alerts.get("problem"):
        console.print(Text(text("no-alerts", lang, why=alerts["problem"]), style="yellow"))
    titles = [text(key, lang) for key in ("attempt", "job", "nodes", "generations", "reason")]
    _table(console, titles, [_attempt_cells(item) for item in facts["attempts"]])
    titles = [text(key, lang) for key in ("rank", "node", "phase", "step")]
    _table(
        console,
        titles,
        [[_plain(item[key]) for key in ("rank", "node", "phase", "step")] for item in facts["ranks"]],
    )


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
        _console().print(Text(line, style="yellow"))


def _run_cells(row: Facts, lang: str) -> list[Text]:
    alerts = row.get("alerts", {})
    return [
        Text(row["run"]),
        Text(state_label(row["state"], lang), style=state_style(row["state"])),
        Text(_step(row)),
        Text(_checkpoint(row)),
        Text("/".join(str(alerts.get(key, 0)) for key in ("sent", "pending", "failed"))),
        Text("; ".join([str(row["reason"]), *_alert_notes(alerts, lang)])),
    ]


def _alert_notes(alerts: Facts, lang: str) -> list[str]:
    """Who knows of the incident, who silenced the run."""
    found = []
    if known := alerts.get("acknowledged"):
        found.append(text("acknowledged", lang, by=known["by"], at=_moment(known["at"])))
    if quiet := alerts.get("silenced"):
        found.append(text("silenced", lang, by=quiet["by"], until=_moment(quiet["until"])))
    return found


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


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
    if not rows:
        return
    if console.is_terminal:
        table = Table(*titles, box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    cells = [[Text(title) for title in titles], *rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [cell.plain + " " * (width - cell.cell_len) for cell, width in zip(row, widths, strict=True)]
        console.print("  ".join(padded).rstrip(), markup=False)
