"""What people are told of that which surrounds a run: its queue, its disk, its copies, its pace, its supervision."""

from dataclasses import replace

from contract.copies.report import Report
from contract.copies.store import Trouble
from contract.copies.target import Kind
from contract.events import AlertQueued, NodeLeftOut, SaveFailed
from contract.history import History, Notice
from contract.states import JobState
from supervisor.core import failure_words
from supervisor.core.advice import advice
from supervisor.core.alert import alert
from supervisor.core.job_words import never_clears
from supervisor.core.phrases import CAUSES, COPIES, SAVE_FIXES, TROUBLES, word
from supervisor.core.text import duration, one_line


def noticed(history: History, notice: Notice) -> AlertQueued:
    """Training goes on; people should know. Once a notice."""
    seen = notice.seen
    return alert(
        history,
        key=notice.key,
        place=f"s{seen.step}",
        severity="warning",
        titles=(word(CAUSES, seen.cause, "zh"), word(CAUSES, seen.cause, "en")),
        lines=(
            [
                f"{failure_words.sentence(seen, 'zh')}。",
                "训练在继续，没有做任何处理。",
                f"建议：{advice(seen, 'zh')}",
            ],
            [f"{seen.reason}.", "Training goes on, nothing was done.", f"Likely fix: {advice(seen, 'en')}"],
        ),
    )


def notice_over(history: History, notice: Notice) -> AlertQueued:
    """The all-clear after `noticed`."""
    assert notice.over is not None
    seen, over = notice.seen, notice.over
    lasted = max(0.0, (notice.over_at or notice.at) - notice.at)
    cause = (word(CAUSES, seen.cause, "zh"), word(CAUSES, seen.cause, "en"))
    return alert(
        history,
        key=notice.over_key,
        ends=notice.key,
        place=f"s{over.step}",
        severity="info",
        titles=(f"{cause[0]}：已恢复正常", f"{cause[1]}: over"),
        lines=(
            [f"第 {over.step} 步起恢复正常，持续 {duration(lasted, 'zh')}。"],
            [f"Over at step {over.step} after {duration(lasted, 'en')}: {over.reason}."],
        ),
    )


def unknown_key(history: History) -> str:
    """One key an episode: the time since which the run is shown as it is."""
    return f"unknown:{int(history.state_at)}"


def unknown(history: History, reason: str, lasted_s: float) -> AlertQueued:
    """Nothing can be seen, and nothing is done."""
    found = alert(
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
    return replace(found, asks=True)


def seen_again(history: History, reason: str) -> AlertQueued:
    """The all-clear after `unknown`."""
    return alert(
        history,
        key=f"seen:{int(history.state_at)}",
        ends=unknown_key(history),
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
    return alert(
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
    return alert(
        history,
        key=f"saved:{int(history.saves_failing_since)}",
        ends=saves_failing_key(history),
        place=f"s{step}",
        severity="info",
        titles=("检查点恢复正常", "checkpoints are written again"),
        lines=(
            [f"第 {step} 步的检查点已写成。"],
            [f"The checkpoint of step {step} is complete."],
        ),
    )


def left_out(history: History, found: NodeLeftOut) -> AlertQueued:
    """A node that is not fit, and the run goes on without it."""
    reason = one_line(found.reason, 500)
    return alert(
        history,
        key=f"left-out:{found.attempt}:{found.node}",
        place=f"a{found.attempt:04d}-{found.node}",
        severity="warning",
        titles=(f"节点 {found.node} 未通过检查", f"{found.node} is not fit"),
        lines=(
            [
                f"训练开始前的检查排除了节点 {found.node}：{reason}",
                "由其他节点顶替，之后的作业也尽量不用它。建议：请管理员检查该节点。",
            ],
            [
                f"{found.node} was left out before it trained: {reason}",
                "Another node stands in, and later jobs avoid it. Have the node checked.",
            ],
        ),
    )


def queue_key(history: History) -> str:
    """One key an episode: the time since which it is silent; the attempt, where it answers and knows nothing."""
    number = history.newest.number if history.newest else 0
    return f"queue:{int(history.queue_silent[0])}" if history.queue_silent else f"queue:a{number:04d}"


def queue_silent(history: History, reason: str, lasted_s: float) -> AlertQueued:
    """The queue does not answer; training may go on undisturbed."""
    key = queue_key(history)
    return alert(
        history,
        key=key,
        place=key.removeprefix("queue:"),
        severity="warning",
        titles=("队列没有应答", "the queue does not answer"),
        lines=(
            [f"作业队列已 {lasted_s:.0f} 秒没有应答（{one_line(reason, 400)}）。不会取消或提交作业。"],
            [
                f"The queue has not answered for {lasted_s:.0f} s ({one_line(reason, 400)}). No job is touched."
            ],
        ),
    )


def queue_answers(history: History, key: str) -> AlertQueued:
    """The all-clear after the `queue_silent` with this key."""
    since = key.removeprefix("queue:")
    return alert(
        history,
        key=f"queue-back:{since}",
        ends=key,
        place=since,
        severity="info",
        answers="warning",
        titles=("队列恢复应答", "the queue answers again"),
        lines=(["作业队列又有应答了。"], ["The queue answers again."]),
    )


def held_key(attempt: int) -> str:
    """One key a job."""
    return f"held:{attempt}"


def held(history: History, attempt: int, reason: str) -> AlertQueued:
    """A job that will not start by itself."""
    why = one_line(reason, 400)
    if never_clears(reason):
        zh = f"作业在队列中被挂起（{why}）：按现在的要求永远不会开始。请取消，或减少节点（或时限）。"
        en = f"The job is held in the queue ({why}): as it was asked for it never starts. Cancel it, or ask for fewer nodes (or less time)."
    else:
        zh = f"作业在队列中被挂起（{why}），不会自己开始，需要有人放行或取消。"
        en = f"The job is held in the queue ({why}): somebody must release or cancel it."
    found = alert(
        history,
        key=held_key(attempt),
        place=f"a{attempt:04d}-r{len(history.faults)}",
        severity="warning",
        titles=("作业被挂起", "the job is held"),
        lines=([zh], [en]),
    )
    return replace(found, asks=True)


def released(history: History, attempt: int, state: JobState) -> AlertQueued:
    """The all-clear after `held`."""
    runs = state is not JobState.PENDING
    return alert(
        history,
        key=f"released:{attempt}",
        ends=held_key(attempt),
        place=f"a{attempt:04d}-r{len(history.faults)}",
        severity="info",
        answers="warning",
        titles=("作业已放行", "the job is no longer held"),
        lines=(
            ["作业已开始运行，无需操作。" if runs else "作业已放行，正在排队，无需操作。"],
            [f"The job {'runs' if runs else 'waits in the queue'}: there is nothing to do."],
        ),
    )


def cannot_submit(history: History, attempt: int, tries: int, reason: str) -> AlertQueued:
    """Still trying."""
    return alert(
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
    return alert(
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
    return alert(
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
    return alert(
        history,
        key=f"copy-back:{kind}:{int(report.was_behind_since)}",
        ends=copy_key(kind, report.was_behind_since),
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
    found = alert(
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
