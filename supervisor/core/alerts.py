"""What people are told of failures and of the run's end: Chinese first, English beside it, with what to do."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from contract.config import RunConfig
from contract.events import AlertQueued, EvidenceKept, Judged, Recovered
from contract.history import History
from contract.layout import AttemptDir, RunDir
from contract.states import Cause, VerdictKind
from supervisor.core import failure_words
from supervisor.core.advice import advice
from supervisor.core.alert import LANGUAGES, alert
from supervisor.core.blame import Suspect
from supervisor.core.budget import Stop
from supervisor.core.evidence import suspicion
from supervisor.core.keeping import order_for
from supervisor.core.observation import CheckpointLook
from supervisor.core.phrases import CAUSES, word
from supervisor.core.rollback import jumped_window
from supervisor.core.text import duration, one_line

_PLANNED = frozenset({Cause.TIME_LIMIT, Cause.PREEMPTED})
_WAYS: Mapping[str, tuple[str, str]] = {
    "in-place": ("原地重启（第 {g} 次启动），{c}", "restart in place (generation {g}), {c}"),
    "attempt": ("换一个新作业（第 {a} 次提交），{c}", "a new job (attempt {a}), {c}"),
    "observe": ("只观察，不处理（observe_only）", "nothing: this run is only observed (observe_only)"),
}


def failed(
    history: History,
    config: RunConfig,
    failure: Judged,
    way: str,
    checkpoint: CheckpointLook | None,
    next_attempt: int,
    avoided: tuple[Suspect, ...] = (),
) -> AlertQueued:
    """A failure that is being answered; by nobody but its reader, where the run is only observed.

    `next_attempt`: the number of a new job, should one be needed. `avoided`: nodes of the failure that the run does
    without from now on.
    """
    way = "observe" if config.supervisor.observe_only else way
    zh = [
        failure_words.sentence(failure, "zh"),
        "处理：" + _doing(failure, way, checkpoint, next_attempt, "zh"),
        "代价：" + _cost(failure, checkpoint, "zh"),
    ]
    en = [
        failure_words.sentence(failure, "en"),
        "Now: " + _doing(failure, way, checkpoint, next_attempt, "en"),
        "Cost: " + _cost(failure, checkpoint, "en"),
    ]
    window = jumped_window(failure, config)
    if window is not None and way != "observe":
        zh.append(f"该步的数据（样本 [{window[0]}, {window[1]})）将被跳过。")
        en.append(f"The data of that step, samples [{window[0]}, {window[1]}), is jumped.")
    hours = config.supervisor.blame_hours
    for suspect in avoided if way != "observe" else ():
        zh.append(f"节点 {suspect.node}：{hours:.0f} 小时内 {suspect.failures} 次故障，尽量不再使用。")
        en.append(f"Node {suspect.node}: {suspect.failures} failures in {hours:.0f} h, avoided from now on.")
    last = _last_line(failure)
    if last:
        zh.append(f"最后输出：{last}")
        en.append(f"Last line: {last}")
    observed = way == "observe"
    zh.append("您需要做：请自行处理" if observed else "您需要做：无需操作，恢复后另行通知")
    en.append("You: please act" if observed else "You: nothing to do; the recovery will be told")
    zh.append(_place(history, config, failure, "zh"))
    en.append(_place(history, config, failure, "en"))
    found = alert(
        history,
        key=f"failure:{failure.cause}",
        place=f"a{failure.attempt:04d}-g{failure.generation:04d}",
        severity="info" if failure.cause in _PLANNED else "warning",
        titles=(failure_words.title(failure, "zh"), failure_words.title(failure, "en")),
        lines=(zh, en),
    )
    return replace(found, asks=observed)


def stopped(history: History, config: RunConfig, failure: Judged, stop: Stop) -> AlertQueued:
    """The end: somebody must act."""
    refused = failure.verdict == VerdictKind.REFUSED
    head_zh = "拒绝训练，已停止" if refused else f"已停止：{word(CAUSES, failure.cause, 'zh')}"
    head_en = "refused to train, stopped" if refused else f"stopped: {word(CAUSES, failure.cause, 'en')}"
    if config.supervisor.observe_only:
        head_zh, head_en = f"{head_zh}（只观察，未处理）", f"{head_en} (only observed, nothing is done)"
    last = _last_line(failure)
    zh = [
        failure_words.sentence(failure, "zh"),
        f"停止原因：{stop.zh}",
        f"建议：{advice(failure, 'zh')}",
        *([f"最后输出：{last}"] if last else []),
        _place(history, config, failure, "zh"),
    ]
    en = [
        failure_words.sentence(failure, "en"),
        f"Stopped because: {stop.en}",
        f"Likely fix: {advice(failure, 'en')}",
        *([f"Last line: {last}"] if last else []),
        _place(history, config, failure, "en"),
    ]
    return alert(
        history,
        key=f"stopped:{failure.attempt}.{failure.generation}",
        place=f"a{failure.attempt:04d}-g{failure.generation:04d}",
        severity="critical",
        titles=(head_zh, head_en),
        lines=(zh, en),
    )


def stopped_before_start(history: History, config: RunConfig, reason: str) -> AlertQueued:
    """The queue will never take this job."""
    number = history.newest.number if history.newest else 0
    evidence = str(_attempt_directory(history, config, number).path)
    return alert(
        history,
        key=f"impossible:{number}",
        place=f"a{number:04d}",
        severity="critical",
        titles=("作业无法提交，已停止", "the job cannot be submitted, stopped"),
        lines=(
            [
                one_line(reason, 800),
                "建议：检查分区、账号、节点数等作业设置，改好后 ciuic resume。",
                f"证据：{evidence}",
            ],
            [
                one_line(reason, 800),
                "Likely fix: correct partition, account or size.",
                f"Evidence: {evidence}",
            ],
        ),
    )


def recovered(history: History, found: Recovered) -> AlertQueued:
    """After a failure, the first new step."""
    lost = found.detect_s + found.restart_s
    failure = _failure_of(history, found)
    return alert(
        history,
        key=f"recovered:{found.attempt}.{found.generation}",
        place=f"a{found.attempt:04d}-g{found.generation:04d}",
        severity="info",
        # Who was told of the failure is told of its end.
        answers="info" if failure is not None and failure.cause in _PLANNED else "warning",
        titles=("已恢复训练", "recovered"),
        lines=(
            [
                f"训练已恢复，现在第 {found.step} 步。",
                f"时间损失：{lost:.1f} 秒（发现 {found.detect_s:.1f} 秒，重启 {found.restart_s:.1f} 秒）。",
                f"重复训练：{found.repeated_steps} 步。",
                *_passed_over(history, found, "zh"),
                *_seen_then(history, found, "zh"),
            ],
            [
                f"Training goes on, step {found.step}.",
                f"Time lost: {lost:.1f} s (detection {found.detect_s:.1f} s, restart {found.restart_s:.1f} s).",
                f"Steps repeated: {found.repeated_steps}.",
                *_passed_over(history, found, "en"),
                *_seen_then(history, found, "en"),
            ],
        ),
    )


def completed(history: History, step: int, now: float) -> AlertQueued:
    """The target is reached."""
    faults, seconds = len(history.faults), max(0.0, now - history.created_at)
    return alert(
        history,
        key="completed",
        place=f"s{step}",
        severity="info",
        titles=("训练完成", "completed"),
        lines=(
            [f"训练已完成，共 {step} 步，历时 {duration(seconds, 'zh')}，期间自动恢复 {faults} 次。"],
            [
                f"Completed at step {step} after {duration(seconds, 'en')}, with {faults} recoveries on the way."
            ],
        ),
    )


def cancelled(history: History, attempt: int) -> AlertQueued:
    """Somebody ended the job outside."""
    return alert(
        history,
        key=f"cancelled:{attempt}",
        place=f"a{attempt:04d}",
        severity="warning",
        titles=("作业被人取消", "the job was cancelled"),
        lines=(
            ["作业在队列中被取消，不是本系统所为，因此不再重新提交。需要继续请 ciuic resume。"],
            [
                "The job was cancelled, and not by the supervisor: it is not submitted again. `ciuic resume` goes on."
            ],
        ),
    )


def _doing(
    failure: Judged, way: str, checkpoint: CheckpointLook | None, next_attempt: int, language: str
) -> str:
    number = LANGUAGES.index(language)
    if checkpoint is None:
        origin = ("从头开始", "from the beginning")[number]
    else:
        origin = (f"从第 {checkpoint.step} 步的检查点继续", f"from the checkpoint of step {checkpoint.step}")[
            number
        ]
    return _WAYS[way][number].format(g=failure.generation + 1, a=next_attempt, c=origin)


def _cost(failure: Judged, checkpoint: CheckpointLook | None, language: str) -> str:
    """What this failure costs, as far as it is known before the restart."""
    again = max(0, failure.step - (checkpoint.step if checkpoint else 0))
    if language == "zh":
        return f"发现用时 {failure.detected_s:.1f} 秒，约 {again} 步要重新训练"
    return f"{failure.detected_s:.1f} s to see it, about {again} steps to train again"


def _place(history: History, config: RunConfig, failure: Judged, language: str) -> str:
    """Where in the run, and where the evidence lies."""
    evidence = _evidence(history, config, failure) + _digest(history, failure, language)
    if language == "zh":
        return f"位置：第 {failure.attempt} 次提交，第 {failure.generation} 次启动；证据：{evidence}"
    return f"Place: attempt {failure.attempt}, generation {failure.generation}. Evidence: {evidence}"


def _passed_over(history: History, found: Recovered, language: str) -> list[str]:
    """That the newest checkpoint was not good enough to go on from: its disk is worth a look."""
    newest, resumed = history.newest_checkpoint, _resumed_at(history, found)
    if newest is None or resumed is None or newest.step <= resumed:
        return []
    if (newest.attempt, newest.generation) >= (found.attempt, found.generation):
        return []  # written since
    failure = _failure_of(history, found)
    if failure is None or failure.verdict == VerdictKind.DIVERGED or failure.cause == Cause.NAN:
        return []  # back on purpose: what the newest holds is no better than its numbers
    if language == "zh":
        why = f"原因见 ciuic checkpoints {history.run} --verify，请检查那块盘。"
        return [f"第 {newest.step} 步的检查点不可用，已从第 {resumed} 步继续；{why}"]
    why = f"`ciuic checkpoints {history.run} --verify` says why; look at that disk."
    return [
        f"The checkpoint of step {newest.step} could not be used, the run went on from step {resumed}; {why}"
    ]


def _resumed_at(history: History, found: Recovered) -> int | None:
    return next(
        (
            generation.resume_step
            for attempt in history.attempts
            for generation in attempt.generations
            if (attempt.number, generation.number) == (found.attempt, found.generation)
        ),
        None,
    )


def _failure_of(history: History, found: Recovered) -> Judged | None:
    for attempt in history.attempts:
        for generation in attempt.generations:
            if (attempt.number, generation.number) == (found.failed_attempt, found.failed_generation):
                return generation.failure
    return None


def _last_line(failure: Judged) -> str:
    """What the suspect said last; several lines where nobody knows what they mean."""
    said = [one_line(line, 400) for line in failure.lines if line.strip()]
    return "\n".join(said[-4:] if failure.cause == Cause.UNEXPLAINED else said[-1:])


def _evidence(history: History, config: RunConfig, failure: Judged) -> str:
    """What was kept for this failure lies there; else logs and exit records of the attempt."""
    place = _attempt_directory(history, config, failure.attempt)
    kept = _kept(history, failure.attempt, failure.generation)
    if kept is not None:
        return kept.path
    return str(place.evidence(failure.generation) if order_for(failure) else place.path)


def _attempt_directory(history: History, config: RunConfig, attempt: int) -> AttemptDir:
    return RunDir(path=Path(config.run.root) / history.run).attempt(attempt)


def _seen_then(history: History, found: Recovered, language: str) -> list[str]:
    """What the evidence said: the message about the failure left before it was read."""
    kept = _kept(history, found.failed_attempt, found.failed_generation)
    if kept is None or not kept.digest:
        return []
    head = "当时的现场：" if language == "zh" else "Where the ranks stood: "
    named = suspicion(kept, language)
    accused = ([f"嫌疑：{named}"] if language == "zh" else [f"Suspected: {named}"]) if named else []
    return [*accused, head + kept.digest.get(language, "")]


def _digest(history: History, failure: Judged, language: str) -> str:
    """Its two lines, each on a line of its own, "" while they are not known."""
    kept = _kept(history, failure.attempt, failure.generation)
    return "".join(f"\n{line}" for line in kept.digest.get(language, "").splitlines()) if kept else ""


def _kept(history: History, attempt: int, generation: int) -> EvidenceKept | None:
    found = [
        item.evidence
        for known in history.attempts
        if known.number == attempt
        for item in known.generations
        if item.number == generation
    ]
    return found[0] if found else None
