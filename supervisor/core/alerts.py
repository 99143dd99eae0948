"""What people are told: Chinese first, English beside it. Short, plain text, with what is done and what to do.

`key` folds: as long as it is open in the history, the same thing is not told again. Recovery opens all keys.
"""

from collections.abc import Mapping
from pathlib import Path

from contract.config import RunConfig
from contract.copies.report import Report
from contract.copies.store import Trouble
from contract.copies.target import Kind
from contract.events import AlertQueued, EvidenceKept, Judged, Recovered, SaveFailed
from contract.history import History, Notice
from contract.layout import AttemptDir, RunDir
from contract.states import Cause, VerdictKind
from supervisor.core import failure_words
from supervisor.core.blame import Suspect
from supervisor.core.budget import Stop
from supervisor.core.keeping import order_for
from supervisor.core.observation import CheckpointLook
from supervisor.core.phrases import CAUSES, COPIES, FIXES, SAVE_FIXES, TROUBLES, word
from supervisor.core.rollback import jumped_window
from supervisor.core.text import cut, duration, one_line
from supervisor.diagnose.live import known_entry

_LINE_BYTES = 800  # so that the last line, where the evidence is, still fits
_TEXT_BYTES = 1900  # the robot takes 2,048; a mark and a note may be added on the way out
_PLANNED = frozenset({Cause.TIME_LIMIT, Cause.PREEMPTED})
_LANGUAGES = ("zh", "en")
_OUR_ADVICE = frozenset(
    {Cause.NAN, Cause.CHECKPOINT}
)  # our own settings and commands say more than the catalogue
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
    """A failure that is being answered.

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
    return _alert(
        history,
        key=f"failure:{failure.cause}",
        place=f"a{failure.attempt:04d}-g{failure.generation:04d}",
        severity="info" if failure.cause in _PLANNED else "warning",
        titles=(failure_words.title(failure, "zh"), failure_words.title(failure, "en")),
        lines=(zh, en),
    )


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
        f"建议：{_fix(failure, 'zh')}",
        *([f"最后输出：{last}"] if last else []),
        _place(history, config, failure, "zh"),
    ]
    en = [
        failure_words.sentence(failure, "en"),
        f"Stopped because: {stop.en}",
        f"Likely fix: {_fix(failure, 'en')}",
        *([f"Last line: {last}"] if last else []),
        _place(history, config, failure, "en"),
    ]
    return _alert(
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
    return _alert(
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
    return _alert(
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
                *_seen_then(history, found, "zh"),
            ],
            [
                f"Training goes on, step {found.step}.",
                f"Time lost: {lost:.1f} s (detection {found.detect_s:.1f} s, restart {found.restart_s:.1f} s).",
                f"Steps repeated: {found.repeated_steps}.",
                *_seen_then(history, found, "en"),
            ],
        ),
    )


def noticed(history: History, notice: Notice) -> AlertQueued:
    """Training goes on; people should know. Once a notice."""
    seen = notice.seen
    return _alert(
        history,
        key=notice.key,
        place=f"s{seen.step}",
        severity="warning",
        titles=(word(CAUSES, seen.cause, "zh"), word(CAUSES, seen.cause, "en")),
        lines=(
            [
                f"{failure_words.sentence(seen, 'zh')}。",
                "训练在继续，没有做任何处理。",
                f"建议：{_fix(seen, 'zh')}",
            ],
            [f"{seen.reason}.", "Training goes on, nothing was done.", f"Likely fix: {_fix(seen, 'en')}"],
        ),
    )


def notice_over(history: History, notice: Notice) -> AlertQueued:
    """The all-clear after `noticed`."""
    assert notice.over is not None
    seen, over = notice.seen, notice.over
    lasted = max(0.0, (notice.over_at or notice.at) - notice.at)
    cause = (word(CAUSES, seen.cause, "zh"), word(CAUSES, seen.cause, "en"))
    return _alert(
        history,
        key=notice.over_key,
        place=f"s{over.step}",
        severity="info",
        titles=(f"{cause[0]}：已恢复正常", f"{cause[1]}: over"),
        lines=(
            [f"第 {over.step} 步起恢复正常，持续 {duration(lasted, 'zh')}。"],
            [f"Over at step {over.step} after {duration(lasted, 'en')}: {over.reason}."],
        ),
    )


def completed(history: History, step: int, now: float) -> AlertQueued:
    """The target is reached."""
    faults, seconds = len(history.faults), max(0.0, now - history.created_at)
    return _alert(
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
    return _alert(
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


def unknown_key(history: History) -> str:
    """One key an episode: the time since which the run is shown as it is."""
    return f"unknown:{int(history.state_at)}"


def unknown(history: History, reason: str, lasted_s: float) -> AlertQueued:
    """Nothing can be seen, and nothing is done."""
    return _alert(
        history,
        key=unknown_key(history),
        place=str(int(history.state_at)),
        severity="warning",
        titles=("无法观测", "cannot be observed"),
        lines=(
            [
                f"已有 {lasted_s:.0f} 秒无法判断任务状态：{one_line(reason, 600)}",
                "不会取消或重新提交任何作业；请检查队列和共享存储。",
            ],
            [
                f"For {lasted_s:.0f} s nothing tells how the run is: {one_line(reason, 600)}",
                "Nothing is cancelled or submitted meanwhile; look at the queue and the shared storage.",
            ],
        ),
    )


def seen_again(history: History, reason: str) -> AlertQueued:
    """The all-clear after `unknown`."""
    return _alert(
        history,
        key=f"seen:{int(history.state_at)}",
        place=str(int(history.state_at)),
        severity="info",
        answers="warning",
        titles=("恢复观测", "seen again"),
        lines=(
            [f"任务状态又能看到了：{one_line(reason, 600)}"],
            [f"The run can be seen again: {one_line(reason, 600)}"],
        ),
    )


def saves_failing_key(history: History) -> str:
    """One key an episode."""
    return f"saves:{int(history.saves_failing_since)}"


def saves_failing(history: History, failure: SaveFailed) -> AlertQueued:
    """Training goes on and nothing of it can be kept."""
    newest = history.newest_checkpoint
    zh_kept = f"最近的有效检查点在第 {newest.step} 步" if newest else "还没有任何有效检查点"
    en_kept = f"the newest valid one is of step {newest.step}" if newest else "there is no valid one yet"
    zh_cause, en_cause = word(CAUSES, failure.cause, "zh"), word(CAUSES, failure.cause, "en")
    reason = one_line(failure.reason, 500)
    return _alert(
        history,
        key=saves_failing_key(history),
        place=f"a{failure.attempt:04d}-g{failure.generation:04d}",
        severity="critical",
        titles=(f"检查点写不下去：{zh_cause}", f"checkpoints cannot be written: {en_cause}"),
        lines=(
            [
                f"训练在继续（第 {failure.step} 步），但检查点没有写成：{reason}",
                f"{zh_kept}；现在出故障，从那里以后的训练都会丢失。",
                f"建议：{word(SAVE_FIXES, failure.cause if failure.cause in SAVE_FIXES else '', 'zh')}",
            ],
            [
                f"Training goes on (step {failure.step}), but a checkpoint was not written: {reason}",
                f"Of the checkpoints {en_kept}; a failure now loses everything since.",
                f"Likely fix: {word(SAVE_FIXES, failure.cause if failure.cause in SAVE_FIXES else '', 'en')}",
            ],
        ),
    )


def saves_again(history: History) -> AlertQueued:
    """The all-clear after `saves_failing`."""
    step = history.newest_checkpoint.step if history.newest_checkpoint else 0
    return _alert(
        history,
        key=f"saved:{int(history.saves_failing_since)}",
        place=f"s{step}",
        severity="info",
        titles=("检查点恢复正常", "checkpoints are written again"),
        lines=(
            [f"第 {step} 步的检查点已写成。"],
            [f"The checkpoint of step {step} is complete."],
        ),
    )


def queue_silent(history: History, reason: str, lasted_s: float) -> AlertQueued:
    """The queue does not answer; training may go on undisturbed."""
    number = history.newest.number if history.newest else 0
    return _alert(
        history,
        key=f"queue:{number}",
        place=f"a{number:04d}-r{len(history.faults)}",
        severity="warning",
        titles=("队列没有应答", "the queue does not answer"),
        lines=(
            [f"作业队列已 {lasted_s:.0f} 秒没有应答（{one_line(reason, 400)}）。不会取消或提交作业。"],
            [
                f"The queue has not answered for {lasted_s:.0f} s ({one_line(reason, 400)}). No job is touched."
            ],
        ),
    )


def held(history: History, attempt: int, reason: str) -> AlertQueued:
    """A job that will not start by itself."""
    return _alert(
        history,
        key=f"held:{attempt}",
        place=f"a{attempt:04d}-r{len(history.faults)}",
        severity="warning",
        titles=("作业被挂起", "the job is held"),
        lines=(
            [f"作业在队列中被挂起（{one_line(reason, 400)}），不会自己开始，需要有人放行或取消。"],
            [f"The job is held in the queue ({one_line(reason, 400)}): somebody must release or cancel it."],
        ),
    )


def cannot_submit(history: History, attempt: int, tries: int, reason: str) -> AlertQueued:
    """Still trying."""
    return _alert(
        history,
        key=f"submit:{attempt}",
        place=f"a{attempt:04d}-r{len(history.faults)}",
        severity="warning",
        titles=("作业提交失败", "the job cannot be submitted yet"),
        lines=(
            [f"已试 {tries} 次仍不能提交作业：{one_line(reason, 600)}", "会继续重试。"],
            [f"{tries} tries to submit the job have failed: {one_line(reason, 600)}", "It is tried again."],
        ),
    )


def will_not_end(history: History, attempt: int, stage: str, waited_s: float) -> AlertQueued:
    """A job that was told to end and is still there. `stage`: forced, or stuck."""
    stuck = stage == "stuck"
    return _alert(
        history,
        key=f"{stage}:{attempt}",
        place=f"a{attempt:04d}",
        severity="critical" if stuck else "warning",
        titles=("作业无法结束", "the job does not end"),
        lines=(
            [
                f"要求作业结束已 {waited_s:.0f} 秒，它仍在；"
                + ("需要人工处理，此前不会提交新作业。" if stuck else "现在强制结束。")
            ],
            [
                f"The job was told to end {waited_s:.0f} s ago and is still there; "
                + (
                    "a person must look; no new job is submitted before."
                    if stuck
                    else "it is ended by force now."
                )
            ],
        ),
    )


def copy_key(kind: Kind, behind_since: float) -> str:
    """One key an episode: the time since which the copy is behind."""
    return f"copy:{kind}:{int(behind_since)}"


def copy_behind(history: History, kind: Kind, report: Report, now: float) -> AlertQueued:
    """Training goes on, but its newest checkpoint is at one place only."""
    waited = now - report.behind_since
    trouble = report.trouble or Trouble.BEHIND
    said = one_line(report.text, 500)
    return _alert(
        history,
        key=copy_key(kind, report.behind_since),
        place=f"{int(report.behind_since)}-r{len(history.faults)}",
        severity="info",
        titles=(f"{word(COPIES, kind, 'zh')}落后", f"the {word(COPIES, kind, 'en')} is behind"),
        lines=(
            [
                f"最新检查点已有 {duration(waited, 'zh')}没有复制到 {report.where or '目的地'}。",
                f"原因：{word(TROUBLES, trouble, 'zh')}" + (f"（{said}）" if said else ""),
                f"{_copied(report, 'zh')}训练不受影响，会继续重试。",
            ],
            [
                f"The newest checkpoint has not been copied to {report.where or 'its place'} for {duration(waited, 'en')}.",
                f"Why: {word(TROUBLES, trouble, 'en')}" + (f" ({said})" if said else ""),
                f"{_copied(report, 'en')} Training goes on, and so do the tries.",
            ],
        ),
    )


def copy_back(history: History, kind: Kind, report: Report) -> AlertQueued:
    """The all-clear after `copy_behind`."""
    return _alert(
        history,
        key=f"copy-back:{kind}:{int(report.was_behind_since)}",
        place=str(int(report.was_behind_since)),
        severity="info",
        titles=(f"{word(COPIES, kind, 'zh')}已跟上", f"the {word(COPIES, kind, 'en')} has caught up"),
        lines=(
            [f"{_copied(report, 'zh')}（{report.where}）"],
            [f"{_copied(report, 'en')} ({report.where})"],
        ),
    )


def _copied(report: Report, language: str) -> str:
    if report.newest is None:
        return "那里还没有任何检查点。" if language == "zh" else "There is no checkpoint there yet."
    step = report.newest[0]
    return f"那里最新的是第 {step} 步。" if language == "zh" else f"The newest there is step {step}."


def broken(history: History, what: str) -> AlertQueued | None:
    """The supervision of this run fails again and again; None when that was told."""
    found = _alert(
        history,
        key="broken",
        place=f"n{len(history.faults)}",
        severity="critical",
        titles=("看护出错", "supervision is broken"),
        lines=(
            [
                f"对此任务的看护反复出错：{one_line(what, 800)}",
                "训练不受影响，但出故障时不会被处理。请查看看护进程日志。",
            ],
            [
                f"Supervising this run fails repeatedly: {one_line(what, 800)}",
                "Training goes on, unattended.",
            ],
        ),
    )
    return None if found.key in history.open_keys else found


def _alert(
    history: History,
    *,
    key: str,
    place: str,
    severity: str,
    titles: tuple[str, str],
    lines: tuple[list[str], list[str]],
    answers: str = "",
) -> AlertQueued:
    """The id is made of what happened, so that a second try after a crash is the same alert."""
    run = history.run or "run"
    heads = {"zh": f"【{run}】{titles[0]}", "en": f"[{run}] {titles[1]}"}
    texts = {
        language: cut(
            "\n".join([heads[language], *(cut(line, _LINE_BYTES) for line in lines[number])]), _TEXT_BYTES
        )
        for number, language in enumerate(_LANGUAGES)
    }
    identity = f"{key.replace(':', '-')}-{place}"
    return AlertQueued(
        id=identity,
        key=key,
        severity=severity,
        answers=answers,
        title={language: one_line(heads[language], 160) for language in _LANGUAGES},
        text=texts,
    )


def _doing(
    failure: Judged, way: str, checkpoint: CheckpointLook | None, next_attempt: int, language: str
) -> str:
    number = _LANGUAGES.index(language)
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


def _failure_of(history: History, found: Recovered) -> Judged | None:
    for attempt in history.attempts:
        for generation in attempt.generations:
            if (attempt.number, generation.number) == (found.failed_attempt, found.failed_generation):
                return generation.failure
    return None


def _fix(failure: Judged, language: str) -> str:
    entry = known_entry(failure.entry)
    if entry is not None and failure.cause not in _OUR_ADVICE:
        return entry.zh if language == "zh" else entry.en
    return word(FIXES, failure.cause if failure.cause in FIXES else "", language)


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
    return [head + kept.digest.get(language, "")]


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
