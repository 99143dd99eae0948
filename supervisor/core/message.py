"""One message out of many alerts: whom it concerns, how each run is now, what happened, how often. Chinese first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from contract.outbox import DIGEST, AlertState
from contract.states import RunState
from supervisor.core.phrases import CAUSES, STATES, word
from supervisor.core.text import cut, size

_NAMED = 6  # runs named in a line; the others are counted
_NEEDS_A_PERSON = (RunState.FAILED, RunState.UNKNOWN)
_SHARED_RUNS = 3  # so many runs with one kind of failure: it is hardly their own

Topic = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One alert with its run, and how that run is now."""

    run: str
    run_state: RunState
    state: AlertState

    @property
    def critical(self) -> bool:
        return self.state.alert.severity == "critical"

    @property
    def urgent(self) -> bool:
        """Whether somebody must act on it: of a run that is over nothing is asked any more."""
        return self.critical or (self.state.alert.asks and not self.run_state.final)

    @property
    def topic(self) -> Topic:
        """What it is about: the same for the beginning of something and its end."""
        return (self.run, self.state.receiver, self.state.alert.ends or self.state.alert.key)

    @property
    def digest(self) -> bool:
        return self.state.alert.key.startswith(DIGEST)


def compose(entries: Sequence[Entry], language: str, limit: int) -> str:
    """The text in at most `limit` bytes. `entries`: one, or what is folded, in the order in which it happened."""
    if entries[0].digest:
        return _digest(entries, language, limit)
    if len(entries) == 1:
        return cut(_text(entries[0], language), limit)
    if len({entry.run for entry in entries}) == 1:
        return _one_run(entries, language, limit)
    return _many_runs(entries, language, limit)


def _one_run(entries: Sequence[Entry], language: str, limit: int) -> str:
    """The newest in full: it says how things are. Then what came before it, each once with its count."""
    newest, before = entries[-1], entries[:-1]
    note = f"\n\n另有 {len(before)} 条：" if language == "zh" else f"\n\n{len(before)} more:"
    counts = Counter(_title(entry, language) for entry in before)
    text = cut(_text(newest, language), limit // 2)
    return _fill(
        text + note, [f"- {title}{_times(count)}" for title, count in counts.items()], language, limit
    )


def _many_runs(entries: Sequence[Entry], language: str, limit: int) -> str:
    """How many runs, of what, how they are now; then a line a run, those that need a person first."""
    last = {entry.run: entry for entry in entries}
    zh = language == "zh"
    head = [
        f"【ciuic】{len(last)} 个任务共 {len(entries)} 条通知"
        if zh
        else f"[ciuic] {len(entries)} alerts of {len(last)} runs"
    ]
    causes = _causes(entries)
    if causes:
        parts = [
            f"{word(CAUSES, cause, language)}{_counted(len(runs), language)}"
            for cause, runs in causes.items()
        ]
        head.append(("故障：" if zh else "Failures: ") + ("；" if zh else "; ").join(parts))
        if max(len(runs) for runs in causes.values()) >= _SHARED_RUNS:
            head.append(
                "多个任务同类故障，多半有共同原因（网络、存储或调度器），请先查看集群。"
                if zh
                else "Several runs fail alike: look at what they share first (network, storage, controller)."
            )
    head.append(("现在：" if zh else "Now: ") + _states(list(last.values()), language))
    head.append("详情：ciuic status，ciuic explain RUN" if zh else "Details: ciuic status, ciuic explain RUN")
    ordered = sorted(last.values(), key=lambda entry: (not _needs(entry), not entry.critical))
    counts = Counter(entry.run for entry in entries)
    lines = [
        f"- {entry.run}{'：' if zh else ': '}{_title(entry, language)}{_times(counts[entry.run])}"
        for entry in ordered
    ]
    return _fill("\n".join(head), lines, language, limit)


def _digest(entries: Sequence[Entry], language: str, limit: int) -> str:
    """The day's report of all runs of a robot. Each run's own line was written when it was due."""
    day = entries[0].state.alert.key.removeprefix(DIGEST)
    last = {entry.run: entry for entry in entries}
    zh = language == "zh"
    head = f"【ciuic】{day} 日报：{len(last)} 个任务" if zh else f"[ciuic] Digest of {day}: {len(last)} runs"
    states = ("状态：" if zh else "States: ") + _states(list(last.values()), language)
    ordered = sorted(last.values(), key=lambda entry: not _needs(entry))
    lines = ["- " + _text(entry, language) for entry in ordered]
    return _fill(f"{head}\n{states}", lines, language, limit)


def _causes(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """Cause → runs, the most frequent first."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        kind, _, cause = entry.state.alert.key.partition(":")
        if kind == "failure":
            found.setdefault(cause, set()).add(entry.run)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _states(entries: Sequence[Entry], language: str) -> str:
    """State, how many, and which."""
    runs: dict[RunState, list[str]] = {}
    for entry in entries:
        runs.setdefault(entry.run_state, []).append(entry.run)
    ordered = sorted(runs, key=lambda state: (state not in _NEEDS_A_PERSON, state))
    parts = []
    for state in ordered:
        names = ("、" if language == "zh" else ", ").join(runs[state][:_NAMED])
        more = "…" if len(runs[state]) > _NAMED else ""
        parts.append(f"{word(STATES, state, language)} {len(runs[state])}（{names}{more}）")
    text = "；".join(parts)
    return text if language == "zh" else text.replace("（", " (").replace("）", ")").replace("；", "; ")


def _needs(entry: Entry) -> bool:
    return entry.run_state in _NEEDS_A_PERSON


def _counted(runs: int, language: str) -> str:
    return f" {runs} 个任务" if language == "zh" else f": {runs} runs"


def _times(count: int) -> str:
    return f" ×{count}" if count > 1 else ""


def _title(entry: Entry, language: str) -> str:
    """Without the run's name, which stands elsewhere."""
    alert = entry.state.alert
    title = alert.title.get(language) or alert.key
    for head in (f"【{entry.run}】", f"[{entry.run}] "):
        title = title.removeprefix(head)
    return title


def _text(entry: Entry, language: str) -> str:
    texts = entry.state.alert.text
    return texts.get(language) or next(iter(texts.values()), "") or entry.state.alert.key


def _fill(text: str, lines: Sequence[str], language: str, limit: int) -> str:
    """The text with as many lines as fit, and how many did not."""
    text = cut(text, limit)
    for number, line in enumerate(lines):
        rest = len(lines) - number
        note = f"\n…还有 {rest} 行" if language == "zh" else f"\n… and {rest} more"
        room = limit - size(text) - (size(note) if rest > 1 else 0)
        if size("\n" + line) > room:
            return text + note if size(text + note) <= limit else text
        text += "\n" + line
    return text
