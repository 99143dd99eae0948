"""One failure in a sentence, in Chinese or English, from what the journal keeps of it."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from contract.events import Judged
from contract.states import Cause, VerdictKind
from supervisor.core.look import some
from supervisor.core.phrases import CAUSES, PHASES, word


def title(failure: Judged, language: str) -> str:
    """A few words: who and why."""
    who = _who(failure, language)
    cause = word(CAUSES, failure.cause, language)
    if failure.verdict == VerdictKind.SAVED:
        if failure.limits.get("unsaved"):
            return "作业到时限，未保存" if language == "zh" else "not saved at the time limit"
        return "作业到时限，已保存" if language == "zh" else "saved at the time limit"
    return f"{who}：{cause}" if language == "zh" else f"{who}: {cause}"


def sentence(failure: Judged, language: str) -> str:
    """What happened, with rank, node, phase, step and the numbers that it rests on."""
    if language != "zh":
        return failure.reason
    say = _CHINESE.get(failure.verdict)
    return say(failure) if say else failure.reason


def _hung(failure: Judged) -> str:
    limit = _seconds(failure.limits.get("limit_s"))
    if failure.cause != "hang":
        return f"{_where(failure)} 在 {limit} 内没有启动：{failure.limits.get('what', '')}"
    idle = _seconds(failure.limits.get("idle_s"))
    if failure.limits.get("everywhere"):
        where = f"所有 rank 同时停在{_phase(failure)}阶段"
    else:
        where = f"{_where(failure)}停在{_phase(failure)}阶段"
    stopped = "，进程被信号暂停" if failure.limits.get("os_state") == "T" else ""
    return f"{where}，{idle}没有进展{stopped}（上限 {limit}），{_step(failure)}"


def _crashed(failure: Judged) -> str:
    return f"{_where(failure)}退出：{_what(failure)}（{_phase(failure)}阶段，{_step(failure)}）"


def _lost(failure: Judged) -> str:
    if failure.limits.get("dead"):
        return f"{_where(failure)} 的代理进程已死，{_step(failure)}"
    if "silent_s" not in failure.limits:
        return f"{_where(failure)} 已被 Slurm 移出作业，{_step(failure)}"
    silent = _seconds(failure.limits.get("silent_s"))
    return f"{_where(failure)} 失联 {silent}（其他节点正常），{_step(failure)}"


def _ended(failure: Judged) -> str:
    word_of_queue = failure.limits.get("job_state", "?")
    return f"作业结束（{word(CAUSES, failure.cause, 'zh')}，队列状态 {word_of_queue}），{_step(failure)}"


def _saved(failure: Judged) -> str:
    if failure.limits.get("unsaved"):
        return f"作业将到时限，程序没有处理 SIGUSR1，未保存就退出，{_step(failure)}"
    return f"作业将到时限，所有进程已保存并退出，{_step(failure)}"


def _slow(failure: Judged) -> str:
    facts = failure.limits
    pace = (
        f"每步 {_seconds(facts.get('recent_s'), 3)}，平时 {_seconds(facts.get('usual_s'), 3)}"
        f"（从第 {facts.get('since')} 步起）"
    )
    if not failure.suspects:
        return f"训练变慢：{pace}；各 rank 相差不大，可能是存储、网络或全部节点变慢"
    return (
        f"训练变慢：{pace}；其他 rank 在等 {_where(failure)}，它每步计算 {_seconds(facts.get('work_s'), 3)}"
        f"（{_phase(failure)}阶段为主），其他 {_seconds(facts.get('others_s'), 3)}"
    )


def _numbers(failure: Judged) -> str:
    facts = failure.limits
    if failure.cause == Cause.LOSS_SPIKE:
        what = "梯度范数" if facts.get("by_norm") else "损失"
        return (
            f"{what}突增：{_figure(facts.get('value'))}，平时 {_figure(facts.get('usual'))}"
            f"（上限 {_figure(facts.get('limit'))}），已连续 {facts.get('steps')} 步，{_step(failure)}"
        )
    if failure.cause == Cause.LOSS_SCALE:
        return f"loss scale 已降到最小值，连续 {facts.get('steps')} 步，{_step(failure)}"
    return f"训练数值异常：{failure.reason}"


_CHINESE: Mapping[str, Callable[[Judged], str]] = MappingProxyType(
    {
        VerdictKind.HUNG: _hung,
        VerdictKind.CRASHED: _crashed,
        VerdictKind.REFUSED: lambda failure: f"{_where(failure)} 拒绝训练：{_what(failure)}",
        VerdictKind.NODE_LOST: _lost,
        VerdictKind.SAVED: _saved,
        VerdictKind.ENDED: _ended,
        VerdictKind.SLOW: _slow,
        VerdictKind.TOO_SLOW: lambda failure: f"{_slow(failure)}；由备用节点替换",
        VerdictKind.DIVERGING: _numbers,
        VerdictKind.DIVERGED: _numbers,
    }
)


def _phase(failure: Judged) -> str:
    return word(PHASES, str(failure.limits.get("phase", "")), "zh")


def _who(failure: Judged, language: str) -> str:
    if failure.limits.get("everywhere"):
        return "所有 rank" if language == "zh" else "all ranks"
    if failure.suspects and failure.verdict != VerdictKind.NODE_LOST:
        return "rank " + some(tuple(str(rank) for rank in failure.suspects), 3)
    return some(failure.nodes, 3) or f"attempt {failure.attempt}"


def _where(failure: Judged) -> str:
    ranks = "rank " + some(tuple(str(rank) for rank in failure.suspects)) if failure.suspects else ""
    nodes = f"节点 {some(failure.nodes)}" if failure.nodes else ""
    if failure.verdict == VerdictKind.NODE_LOST or not ranks:
        return nodes or "各节点"
    return f"{ranks}（{nodes}）" if nodes else f"{ranks} "


def _what(failure: Judged) -> str:
    what = str(failure.limits.get("what", "")) or failure.reason
    killed_by = what.removeprefix("was killed by ")
    if failure.cause == Cause.SIGNAL and killed_by != what:
        return f"被 {killed_by} 杀死"
    failed = re.match(r"failed with exit code (\d+): (.*)", what, re.DOTALL)
    if failed:
        return f"{word(CAUSES, failure.cause, 'zh')}，退出码 {failed[1]}：{failed[2]}"
    return f"{word(CAUSES, failure.cause, 'zh')}，{what}"


def _step(failure: Judged) -> str:
    return f"第 {failure.step} 步之后" if failure.step >= 0 else "尚未完成一步"


def _seconds(value: object, digits: int = 0) -> str:
    """One decimal, or so many digits that count."""
    if not isinstance(value, int | float):
        return "? 秒"
    return f"{value:.{digits}g} 秒" if digits else f"{value:.1f} 秒"


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "?"
