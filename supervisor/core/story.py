"""The story of a run for people: one sentence an event, with its time and its reason."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from contract import events as ev
from contract.hot import told
from supervisor.core import failure_words
from supervisor.core.evidence import suspicion
from supervisor.core.phrases import CAUSES, JOB_STATES, REQUESTS, SEVERITIES, STATES, VERDICTS, word
from supervisor.core.reasons import chinese, failures_in_chinese
from supervisor.core.text import one_line

Teller = Callable[[Any, str], str]
_SAID = frozenset({"reason", "outcome"})
_SAID_BYTES = 4000


def story(events: Iterable[ev.Event], language: str = "en") -> list[str]:
    """Sentences in the order of the journal. Events that explain nothing to people are left out."""
    told = []
    epoch = 0
    events = tuple(events)
    failures = failures_in_chinese(event.body for event in events) if language == "zh" else {}
    fates = _fates(event.body for event in events)
    for event in events:
        if event.epoch < epoch:
            continue  # written by a supervisor that was overtaken: it does not count
        epoch = event.epoch
        if isinstance(event.body, ev.AlertFailed) and event.body.id in fates.refused:
            continue  # said where it was queued
        tell = fates.told if isinstance(event.body, ev.AlertQueued) else _TELLERS.get(type(event.body))
        if tell is not None:
            at = datetime.fromtimestamp(event.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
            body = _on_one_line(event.body)
            body = _in_chinese(body, failures) if language == "zh" else body
            told.append(f"{at}Z  {tell(body, language)}")
    return told


def _on_one_line(body: ev.Body) -> ev.Body:
    """The event with what others said (sbatch, a program, a file system) on one line, however they said it."""
    said = {item.name: getattr(body, item.name) for item in fields(body) if item.name in _SAID}
    return replace(body, **{name: one_line(words, _SAID_BYTES) for name, words in said.items()})


def _in_chinese(body: ev.Body, failures: Mapping[str, str]) -> ev.Body:
    """The event with its reason in Chinese. A failure has its own words."""
    if isinstance(body, ev.Judged):
        return body
    known = {item.name for item in fields(body)} & _SAID
    return replace(body, **{name: chinese(getattr(body, name), failures) for name in known})


def _say(language: str, zh: str, en: str) -> str:
    return zh if language == "zh" else en


def _created(body: ev.RunCreated, language: str) -> str:
    many, unit, zh = body.target_steps, "steps", "步"
    if not many:
        many, unit, zh = body.target_tokens, "tokens", "token"
    return _say(
        language,
        f"创建任务 {body.run}，目标 {many} {zh}",
        f"run {body.run} was created, target {many} {unit}",
    )


def _watched(body: ev.SupervisorStarted, language: str) -> str:
    return _say(
        language,
        f"看护进程开始看护（{body.host}，pid {body.pid}）",
        f"a supervisor took it up ({body.host}, pid {body.pid})",
    )


def _unanswered(body: ev.QueueSilent, language: str) -> str:
    return _say(
        language,
        f"看护进程已 {body.silent_s:.0f} 秒问不到作业队列：{body.reason}",
        f"the supervisor has had no answer from the queue for {body.silent_s:.0f} s: {body.reason}",
    )


def _answered(body: ev.QueueAnswered, language: str) -> str:
    del body
    return _say(language, "作业队列恢复应答", "the queue answers the supervisor again")


def _intended(body: ev.AttemptIntended, language: str) -> str:
    out = f"; without {', '.join(body.exclude)}" if body.exclude else ""
    aus = f"；排除节点 {', '.join(body.exclude)}" if body.exclude else ""
    return _say(
        language,
        f"准备第 {body.attempt} 次提交：{body.reason}{aus}",
        f"attempt {body.attempt} is to be submitted: {body.reason}{out}",
    )


def _submitted(body: ev.AttemptSubmitted, language: str) -> str:
    found = " (found in the queue and adopted)" if body.adopted else ""
    return _say(
        language,
        f"第 {body.attempt} 次提交成功，作业号 {body.job_id}"
        + ("（在队列中找到并接管）" if body.adopted else ""),
        f"attempt {body.attempt} is job {body.job_id}{found}",
    )


def _not_submitted(body: ev.SubmitFailed, language: str) -> str:
    return _say(
        language,
        f"第 {body.attempt} 次提交失败：{body.reason}" + ("（不再重试）" if body.permanent else ""),
        f"attempt {body.attempt} was not accepted{' for good' if body.permanent else ''}: {body.reason}",
    )


def _cancel(body: ev.CancelIntended, language: str) -> str:
    return _say(
        language,
        f"要求作业 {body.attempt} 结束：{body.reason}",
        f"attempt {body.attempt} is ended: {body.reason}",
    )


def _over(body: ev.AttemptEnded, language: str) -> str:
    return _say(
        language,
        f"作业 {body.attempt} 已结束（{word(JOB_STATES, body.job_state, language)}）：{body.reason}",
        f"attempt {body.attempt} is over ({body.job_state}): {body.reason}",
    )


def _ordered(body: ev.GenerationIntended, language: str) -> str:
    nodes = ", ".join(body.members)
    return _say(
        language,
        f"原地重启：第 {body.generation} 次启动，节点 {nodes}；原因：{body.reason}",
        f"restart in place: generation {body.generation} on {nodes}, because {body.reason}",
    )


def _went(body: ev.GenerationWent, language: str) -> str:
    nodes = ", ".join(body.members)
    return _say(
        language,
        f"第 {body.generation} 次启动开始，节点 {nodes}",
        f"generation {body.generation} of attempt {body.attempt} started on {nodes}",
    )


def _resumed(body: ev.GenerationResumed, language: str) -> str:
    zh, en = ("继续", "resumed") if body.step else ("开始", "starts")
    return _say(
        language,
        f"第 {body.generation} 次启动从第 {body.step} 步{zh}"
        + (f"，检查点取自 {body.restored_from}" if body.restored_from else ""),
        f"generation {body.generation} of attempt {body.attempt} {en} at step {body.step}"
        + (f", its checkpoint brought back from {body.restored_from}" if body.restored_from else ""),
    )


def _judged(body: ev.Judged, language: str) -> str:
    return _say(
        language,
        f"判定{word(VERDICTS, body.verdict, language)}：{failure_words.sentence(body, 'zh')}",
        f"judged {body.verdict} ({body.cause}): {body.reason}",
    )


def _evidence(body: ev.EvidenceKept, language: str) -> str:
    named = suspicion(body, language)
    lines = [_say(language, f"嫌疑：{named}", f"suspected: {named}") if named else ""]
    lines += body.digest.get(language, "").splitlines()
    missing = ", ".join(body.missing)
    head = _say(
        language,
        f"证据：{body.path}" + (f"（缺少 {missing}）" if missing else ""),
        f"evidence in {body.path}" + (f" (nothing from {missing})" if missing else ""),
    )
    return "\n".join([head, *(f"    {line}" for line in lines if line)])


def _noticed(body: ev.Noticed, language: str) -> str:
    return _say(
        language, f"注意到：{failure_words.sentence(body, 'zh')}", f"noticed {body.verdict}: {body.reason}"
    )


def _notice_over(body: ev.NoticeOver, language: str) -> str:
    cause = word(CAUSES, body.cause, language)
    return _say(language, f"{cause}：已恢复正常，第 {body.step} 步", f"{cause} is over: {body.reason}")


def _recovered(body: ev.Recovered, language: str) -> str:
    return _say(
        language,
        f"已恢复，第 {body.step} 步；发现 {body.detect_s:.1f} 秒，重启 {body.restart_s:.1f} 秒，"
        f"重复 {body.repeated_steps} 步",
        f"recovered at step {body.step}: detection {body.detect_s:.1f} s, restart {body.restart_s:.1f} s, "
        f"{body.repeated_steps} steps repeated",
    )


def _saved(body: ev.CheckpointSeen, language: str) -> str:
    return _say(language, f"检查点：第 {body.step} 步", f"checkpoint at step {body.step}")


def _not_saved(body: ev.SaveFailed, language: str) -> str:
    return _say(
        language,
        f"检查点没有写成（{body.cause}），训练继续：{body.reason}",
        f"a checkpoint was not written ({body.cause}), training goes on: {body.reason}",
    )


def _left_out(body: ev.NodeLeftOut, language: str) -> str:
    return _say(
        language,
        f"节点 {body.node} 在训练前被排除：{body.reason}",
        f"{body.node} was left out before it trained: {body.reason}",
    )


def _batch(body: ev.BatchChanged, language: str) -> str:
    return _say(
        language,
        f"第 {body.step} 步更换批计划：{body.reason}",
        f"batch plan changed at step {body.step}: {body.reason}",
    )


def _state(body: ev.StateChanged, language: str) -> str:
    state = word(STATES, body.state, language)
    return _say(
        language,
        f"状态：{state}" + (f"；{body.reason}" if body.reason else ""),
        f"state {state}: {body.reason}",
    )


def _bounds(body: ev.BoundsSet, language: str) -> str:
    upper = body.max_step if body.max_step >= 0 else "∞"
    why = f": {body.reason}" if body.reason else ""
    jumped = ", ".join(f"[{start}, {end})" for start, end in body.skip_windows)
    return _say(
        language,
        f"恢复点范围 [{body.min_step}, {upper}]{f'，跳过样本 {jumped}' if jumped else ''}{why}",
        f"resume points allowed: [{body.min_step}, {upper}]{f', samples jumped: {jumped}' if jumped else ''}{why}",
    )


def _changed(body: ev.SettingsChanged, language: str) -> str:
    keys = ", ".join(body.hot_dropped)
    return _say(
        language,
        f"配置已改：{'；'.join(body.changes) or '无'}" + (f"；训练中设置的 {keys} 不再生效" if keys else ""),
        f"settings changed: {'; '.join(body.changes) or 'none'}"
        + (f"; what was set of {keys} while it trained holds no longer" if keys else ""),
    )


def _asked(body: ev.RequestTaken, language: str) -> str:
    return _say(
        language,
        f"{body.by or '有人'}请求{word(REQUESTS, body.request, language)}",
        f"{body.by or 'somebody'} asked to {body.request}",
    )


def _done(body: ev.RequestDone, language: str) -> str:
    how = "完成" if body.ok else "未执行"
    return _say(
        language, f"请求{how}：{body.outcome}", f"{'done' if body.ok else 'not done'}: {body.outcome}"
    )


def _set(body: ev.HotSet, language: str) -> str:
    return _say(
        language,
        f"{body.by} 在训练中设置 {told(body.values)}",
        f"{body.by or 'somebody'} set while it trains: {told(body.values)}",
    )


def _profile_asked(body: ev.ProfileAsked, language: str) -> str:
    return _say(language, f"分析接下来的几步：{body.reason}", f"the next steps are profiled: {body.reason}")


def _profile_kept(body: ev.ProfileKept, language: str) -> str:
    missing = ", ".join(str(rank) for rank in body.missing)
    head = _say(
        language,
        f"性能分析（第 {body.first_step} 步起）：{body.path}"
        + (f"（缺少 rank {missing}）" if missing else ""),
        f"profile from step {body.first_step} on in {body.path}"
        + (f" (nothing from rank {missing})" if missing else ""),
    )
    return "\n".join([head, *(f"    {line}" for line in body.digest.get(language, "").splitlines() if line)])


@dataclass(frozen=True, kw_only=True)
class _Fates:
    """What became of the alerts. `left`: ids of those that were sent; `refused`: id → why it could never be."""

    left: frozenset[str]
    refused: Mapping[str, str]

    def told(self, body: Any, language: str) -> str:  # an AlertQueued
        """Whether people were told this, and if not, why."""
        title, level = body.title.get(language) or body.key, word(SEVERITIES, body.severity, language)
        if body.id in self.left:
            return _say(language, f"通知（{level}）：{title}", f"told ({body.severity}): {title}")
        if body.receivers and body.id not in self.refused:
            return _say(language, f"待通知（{level}）：{title}", f"to be told ({body.severity}): {title}")
        why = self.refused.get(body.id) or f"no receiver is configured for {body.severity} messages"
        if language == "zh":
            why = chinese(why, {})
        return _say(
            language,
            f"未通知（{level}）：{title}；{why}",
            f"not told ({body.severity}): {title}; {why}",
        )


def _fates(bodies: Iterable[ev.Body]) -> _Fates:
    left: set[str] = set()
    refused: dict[str, str] = {}
    for body in bodies:
        match body:
            case ev.AlertTried() | ev.AlertDelivered():
                left |= {body.id, *body.also}
            case ev.AlertFailed(permanent=True):
                refused |= dict.fromkeys((body.id, *body.also), one_line(body.reason, _SAID_BYTES))
            case _:
                pass
    return _Fates(
        left=frozenset(left), refused={name: why for name, why in refused.items() if name not in left}
    )


def _untold(body: ev.AlertFailed, language: str) -> str:
    end = "不再重试" if body.permanent else "稍后重试"
    return _say(
        language,
        f"通知未送达：{body.reason}（{end}）",
        f"an alert did not arrive: {body.reason}{'' if body.permanent else ' (it is tried again)'}",
    )


def _known(body: ev.AlertsAcknowledged, language: str) -> str:
    return _say(
        language,
        f"{body.by} 已确认当前故障，解决前不再重复通知",
        f"{body.by} acknowledged the incident: it is not told again until it is over",
    )


def _quiet(body: ev.AlertsSilenced, language: str) -> str:
    if not body.until:
        return _say(language, f"{body.by} 结束了静默", f"{body.by} ended the silence")
    until = datetime.fromtimestamp(body.until, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return _say(language, f"{body.by} 将通知静默到 {until}", f"{body.by} silenced the alerts until {until}")


_TELLERS: Mapping[type[ev.Body], Teller] = MappingProxyType(
    {
        ev.RunCreated: _created,
        ev.SupervisorStarted: _watched,
        ev.QueueSilent: _unanswered,
        ev.QueueAnswered: _answered,
        ev.AttemptIntended: _intended,
        ev.AttemptSubmitted: _submitted,
        ev.SubmitFailed: _not_submitted,
        ev.CancelIntended: _cancel,
        ev.AttemptEnded: _over,
        ev.GenerationIntended: _ordered,
        ev.GenerationWent: _went,
        ev.GenerationResumed: _resumed,
        ev.Judged: _judged,
        ev.EvidenceKept: _evidence,
        ev.Noticed: _noticed,
        ev.NoticeOver: _notice_over,
        ev.Recovered: _recovered,
        ev.CheckpointSeen: _saved,
        ev.SaveFailed: _not_saved,
        ev.NodeLeftOut: _left_out,
        ev.BatchChanged: _batch,
        ev.StateChanged: _state,
        ev.BoundsSet: _bounds,
        ev.SettingsChanged: _changed,
        ev.RequestTaken: _asked,
        ev.RequestDone: _done,
        ev.HotSet: _set,
        ev.ProfileAsked: _profile_asked,
        ev.ProfileKept: _profile_kept,
        ev.AlertFailed: _untold,
        ev.AlertsAcknowledged: _known,
        ev.AlertsSilenced: _quiet,
    }
)
