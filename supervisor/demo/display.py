"""What the demo shows: a progress bar on a terminal, a line now and then elsewhere; the alerts as they arrive."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from contract.events import Judged, Recovered
from contract.layout import RunDir
from supervisor.core.failure_words import sentence
from supervisor.words import command_name

_PLAIN_EVERY_S = 5.0

WORDS: Mapping[str, Mapping[str, str]] = {
    "prepare": {"zh": "准备语料：Python 标准库源码", "en": "preparing the corpus: Python's standard library"},
    "submitted": {"zh": "已提交 {run}", "en": "submitted {run}"},
    "hurt": {
        "zh": "演示注入故障：第 {step} 步向 rank {rank} 发送 {signal}",
        "en": "the demo sends {signal} to rank {rank} at step {step}",
    },
    "verdict": {"zh": "看护进程判定：{reason}", "en": "supervisor: {reason}"},
    "resumed": {
        "zh": "第 {generation} 代从第 {step} 步的检查点恢复",
        "en": "generation {generation} resumes from the checkpoint of step {step}",
    },
    "recovered": {
        "zh": "已恢复：第 {step} 步完成（发现 {detect:.1f} 秒，重启 {restart:.1f} 秒）",
        "en": "recovered: step {step} is done (detection {detect:.1f} s, restart {restart:.1f} s)",
    },
    "alert": {"zh": "企业微信收到", "en": "arrived in WeChat Work"},
    "title": {"zh": "每次故障的代价", "en": "what each fault cost"},
    "fault": {"zh": "故障", "en": "fault"},
    "detect": {"zh": "发现", "en": "detection"},
    "restart": {"zh": "重启", "en": "restart"},
    "repeated": {"zh": "重做步数", "en": "steps repeated"},
    "effective": {"zh": "有效训练时间占比", "en": "effective training time"},
    "effective_of": {
        "zh": "{share:.0%}（{seconds:.0f} 秒中，提交、启动、故障之外真正推进训练的部分）",
        "en": "{share:.0%} of {seconds:.0f} s (without submission, start, detection, restart and repeated steps)",
    },
    "losses": {
        "zh": "损失 {first:.3f} → {last:.3f}，验证 {val:.3f}",
        "en": "loss {first:.3f} → {last:.3f}, validation {val:.3f}",
    },
    "where": {"zh": "运行目录", "en": "run directory"},
    "more": {"zh": "查看经过", "en": "the story"},
}


class Display:
    """One console in one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._console = Console(highlight=False)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._target = 0
        self._plain_at = 0.0

    def say(self, word: str, **values: Any) -> None:
        """One sentence with the time of day."""
        text = WORDS[word][self._language].format(**values)
        style = {"hurt": "magenta", "verdict": "yellow", "recovered": "green"}.get(word, "")
        self._console.print(
            f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(text)}", style=style, soft_wrap=True
        )

    def verdict(self, failure: Judged) -> None:
        """What the supervisor found, in the words of its alerts."""
        self.say("verdict", reason=sentence(failure, self._language))

    def submitted(self, run_id: str) -> None:
        self.say("submitted", run=run_id)

    def alert(self, text: str) -> None:
        """A message as the robot got it."""
        self._console.print(
            Panel(escape(text), title=WORDS["alert"][self._language], border_style="cyan", expand=False)
        )

    @contextmanager
    def progress(self, target: int) -> Iterator[None]:
        """The bar, for as long as the block runs; without a terminal, lines."""
        self._target = target
        if not sys.stdout.isatty():
            yield
            return
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            self._progress, self._task = bar, bar.add_task("…", total=target)
            yield
        self._progress = None

    def update(self, rows: Sequence[Mapping[str, Any]], state: str) -> None:
        """Newest step, loss and speed."""
        last = rows[-1] if rows else None
        text = f"0/{self._target}  {state or '…'}"
        if last is not None:
            text = f"{last['step']}/{self._target}  loss {last['loss']:.3f}  {last['tokens_per_s']:,.0f} tokens/s  {state}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=last["step"] if last else 0, description=text)
        elif time.monotonic() - self._plain_at >= _PLAIN_EVERY_S:
            self._plain_at = time.monotonic()
            self._console.print(f"         {text}")

    def summary(
        self,
        run: RunDir,
        recoveries: Sequence[Recovered],
        rows: Sequence[Mapping[str, Any]],
        alerts: Sequence[str],
        *,
        seconds: float,
    ) -> None:
        """What each fault cost, and where everything is. Effective time counts each step once, at its own length."""
        words = {name: texts[self._language] for name, texts in WORDS.items()}
        table = Table(title=words["title"], title_justify="left")
        for name in ("fault", "detect", "restart", "repeated"):
            table.add_column(words[name])
        for number, item in enumerate(recoveries, start=1):
            table.add_row(
                str(number), f"{item.detect_s:.1f} s", f"{item.restart_s:.1f} s", str(item.repeated_steps)
            )
        self._console.print(table)
        share = sum(row["step_s"] for row in rows) / seconds
        self._console.print(
            f"{words['effective']}: {words['effective_of'].format(share=share, seconds=seconds)}"
        )
        values = [row["val_loss"] for row in rows if "val_loss" in row]
        if rows and values:
            self._console.print(
                words["losses"].format(first=rows[0]["loss"], last=rows[-1]["loss"], val=values[-1])
            )
        self._console.print(f"{words['alert']}: {len(alerts)}")
        self._console.print(f"{words['where']}: {run.path}", soft_wrap=True)
        story = f"{command_name()} explain {run.run_id} --root {run.path.parent}"
        self._console.print(f"{words['more']}: {story}", soft_wrap=True)
