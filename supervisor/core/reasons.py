"""The closed set of reasons in Chinese. The journal keeps one language; people read theirs.

A reason that is the sentence of a recorded failure is told by `failure_words`; what comes from outside (Slurm, an
exception) stays as it was said.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from contract.events import Body, Judged
from contract.history import History
from contract.language import piecewise
from supervisor.core import failure_words
from supervisor.core.phrases import CAUSES, REQUESTS, SEVERITIES, STATES, VERDICTS, word

# Groups named `what` or `why` hold a reason, `causes` classes of failures, those of `_NAMED` a word; all others stay.
_RULES: tuple[tuple[str, str], ...] = (
    (r"the first attempt", "首次提交"),
    (r"submitted", "由提交命令"),
    (r"set (?P<key>[A-Za-z_]\w*)", "请设置 {key}"),
    (r"request (?P<verb>\w+) of (?P<who>\S+): (?P<what>.+)", "{who} 请求{verb}：{what}"),
    (
        r"(?P<run>\S+): attempt (?P<n>\d+) generation (?P<g>\d+) (?P<verdict>[\w-]+): (?P<what>.+)",
        "{run}：第 {n} 次作业第 {g} 次启动：{verdict}：{what}",
    ),
    (r"(?P<run>\S+): state (?P<state>\w+): (?P<what>.*)", "{run}：状态：{state}：{what}"),
    (r"(?P<run>\S+): left alone from now on", "{run}：不再看护"),
    (r"(?P<run>\S+): (?P<what>request \w+ of .+)", "{run}：{what}"),
    (
        r"the run is (?P<state>\w+), and nothing of it changes any more\. To train further, .+: (?P<first>`ciuic export \S+`), then (?P<then>`.+`) \(and (?P<more>.+)\)",
        "任务{state}，不会再有变化。要继续训练，请用它的权重开始新任务：先 {first}，再 {then}（以及 {more}）",
    ),
    (r"alerts are not configured \(set (?P<key>\S+)\)", "没有配置告警接收方（请设置 {key}）"),
    (r"alerts are not configured(?:: (?P<why>.+))?", "没有配置告警接收方：{why}"),
    (r"no receiver in \[alerts\]", "[alerts] 中没有接收方"),
    (r"no receiver (?P<name>\S+)", "没有接收方 {name}"),
    (r"no receiver is configured for (?P<severity>\S+) messages", "没有配置接收{severity}消息的接收方"),
    (r"the last attempt is over", "上一次作业已结束"),
    (r"resumed by (?P<who>[^;]+)", "{who} 要求继续"),
    (r"cancelled by (?P<who>[^;]+)", "被 {who} 取消"),
    (r"paused by (?P<who>[^;]+)", "被 {who} 暂停"),
    (r"paused", "已暂停"),
    (r"newest checkpoint: step (?P<step>\d+)", "最新检查点：第 {step} 步"),
    (r"there is no checkpoint", "还没有检查点"),
    (
        r"(?P<n>\d+) of its workers did not catch SIGUSR1 and saved nothing for the pause",
        "{n} 个 worker 没有处理 SIGUSR1，暂停时未保存",
    ),
    (
        r"all agents have left or are about to, and no supervisor has said why yet",
        "所有节点代理都已离开或正要离开，还没有看护进程说明原因",
    ),
    (r"no attempt yet", "尚未提交作业"),
    (r"generation (?P<g>\d+) of attempt (?P<n>\d+) is ordered", "已要求第 {n} 次作业的第 {g} 次启动"),
    (r"attempt (?P<n>\d+) is not submitted yet(?:: (?P<why>.+))?", "第 {n} 次提交尚未完成：{why}"),
    (
        r"job (?P<job>\S+) waits in the queue(?: \((?P<why>.*)\))?",
        "作业 {job} 在排队（{why}）",
    ),
    (
        r"job (?P<job>\S+) held in the queue and will not start by itself(?: \((?P<why>.*)\))?",
        "作业 {job} 被挂起，不会自己开始（{why}）",
    ),
    (
        r"(?P<there>\d+) of (?P<all>\d+) agents are there, no worker yet",
        "{all} 个节点代理已有 {there} 个就位，尚无 worker",
    ),
    (
        r"(?P<done>\d+) of (?P<all>\d+) workers have finished their first step",
        "{all} 个 worker 中有 {done} 个完成了第一步",
    ),
    (
        r"all (?P<n>\d+) workers train, step (?P<step>\d+) of (?P<all>\d+)",
        "{n} 个 worker 都在训练，第 {step}/{all} 步",
    ),
    (r"all (?P<n>\d+) workers train, step (?P<step>\d+)", "{n} 个 worker 都在训练，第 {step} 步"),
    (
        r"all (?P<n>\d+) workers run; the program reports no progress: only its exit is watched",
        "{n} 个 worker 都在运行；程序不报告进度，只监视退出",
    ),
    (r"all (?P<n>\d+) workers finished, at step (?P<step>\d+)", "{n} 个 worker 都已完成，第 {step} 步"),
    (
        (
            r"(?P<k>\d+) of (?P<n>\d+) workers left to pause without saving, at step (?P<step>\d+): "
            r"the program does not catch SIGUSR1"
        ),
        "{n} 个 worker 中有 {k} 个未保存就退出（暂停），第 {step} 步：程序没有处理 SIGUSR1",
    ),
    (
        r"all (?P<n>\d+) workers saved to pause and left, at step (?P<step>\d+)",
        "{n} 个 worker 已保存并退出（暂停），第 {step} 步",
    ),
    (
        r"all (?P<n>\d+) workers saved (?P<why>.+) and left, at step (?P<step>\d+)",
        "{n} 个 worker 已保存并退出（{why}），第 {step} 步",
    ),
    (
        r"rank (?P<rank>\d+) on (?P<node>\S+) has ended; what explains it is due in a moment",
        "rank {rank}（节点 {node}）已退出，正在查明原因",
    ),
    (
        r"the job was cancelled, and not by the supervisor(?:: (?P<what>.+)| \((?P<why>.+)\))?",
        "作业被取消，不是看护进程所为（{what}{why}）",
    ),
    (
        r"the job ended well at the target step (?P<step>\d+): (?P<what>.+)",
        "作业在目标第 {step} 步正常结束（{what}）",
    ),
    (
        r"the job ended and no worker's end explains it: (?P<what>.+)",
        "作业已结束，没有 worker 的退出能说明原因（{what}）",
    ),
    (r"the job ended before any agent started: (?P<what>.+)", "作业在任何节点代理启动之前就结束了（{what}）"),
    (r"the job ended as it was told to: (?P<what>.+)", "作业已按要求结束（{what}）"),
    (r"the job lost a node: (?P<what>.+)", "作业失去一个节点（{what}）"),
    (r"the job reached its time limit: (?P<what>.+)", "作业到达时限（{what}）"),
    (r"the job was preempted: (?P<what>.+)", "作业被抢占（{what}）"),
    (r"the job is over", "作业已结束"),
    (r"the job is ending", "作业正在结束"),
    (r"the queue says (?P<said>.+)", "队列状态 {said}"),
    (r"the queue does not say", "队列没有说明"),
    (r"the queue is asked first", "先询问队列"),
    (r"whether the job (?:exists|is over) is not known", "作业是否存在尚不清楚"),
    (r"no process of it is left", "它的进程已全部结束"),
    (r"no process of it is on this machine", "本机上没有它的进程"),
    (r"the machine has booted since", "机器已重新启动"),
    (r"(?:it was )?never handed in", "从未提交"),
    (r"runs on (?P<host>\S+), not here", "在 {host} 上运行，不在本机"),
    (r"the controller is about to end", "控制进程正要结束"),
    (r"the agents are starting", "节点代理正在启动"),
    (r"(?P<tool>squeue|scontrol|Slurm) gave no answer(?:: (?P<said>[^;]+))?", "{tool} 没有应答：{said}"),
    (r"SLURM_CONF is not set for the process that asks", "查询进程没有设置 SLURM_CONF"),
    (r"no job with the attempt's tag", "没有带此标记的作业"),
    (r"Slurm has forgotten the job", "Slurm 已不再记得这个作业"),
    (r"never submitted", "从未提交"),
    (r"the workers save and the agents leave", "worker 正在保存，节点代理随后离开"),
    (r"the agents leave by themselves", "节点代理会自行离开"),
    (r"saved, but the agents do not leave", "已保存，但节点代理没有离开"),
    (r"it could not save: (?P<what>.+)", "未能保存：{what}"),
    (r"a new attempt is needed: (?P<what>.+)", "需要新的作业：{what}"),
    (r"attempt (?P<n>\d+) was told to end: (?P<what>.+)", "已要求第 {n} 次作业结束：{what}"),
    (r"still there after (?P<s>\d+) s", "{s} 秒后仍在"),
    (r"backs off before the restart: (?P<what>.+)", "重启前先等待：{what}"),
    (r"submits again: (?P<why>.*)", "将再次提交：{why}"),
    (r"the job cannot be submitted: (?P<why>.+)", "作业无法提交：{why}"),
    (r"cannot be observed: (?P<what>.+)", "无法观测：{what}"),
    (r"cannot be read: (?P<why>.+)", "无法读取：{why}"),
    (r"no node's beat has been seen to move yet", "还没有看到任何节点的心跳变化"),
    (
        r"no node's beat has moved for (?P<s>\d+) s; (?P<what>the queue says [^;]+)",
        "所有节点的心跳已 {s} 秒没有变化；{what}",
    ),
    (
        r"the beat of (?P<nodes>.+) has not been seen to move yet \((?P<s>\d+) s\)",
        "还没有看到节点 {nodes} 的心跳变化（{s} 秒）",
    ),
    (r"by the time of the beats' files", "以心跳文件的时间计"),
    (r"Slurm has not answered yet", "Slurm 尚未应答"),
    (r"left alone: (?P<why>.+)", "不作处理：{why}"),
    (r"the run is (?P<state>\w+)", "任务{state}"),
    (r"the run goes on(?: with a new attempt)?", "任务继续"),
    (r"only paused, failed or cancelled runs are resumed", "只有已暂停、已失败或已取消的任务可以继续"),
    (r"the run is (?P<state>\w+): there is nothing to (?P<verb>\w+)", "任务{state}，无法{verb}"),
    (
        r"the run is (?P<state>\w+): say it with the resume, (?P<command>.+)",
        "任务{state}，请在恢复时设置：{command}",
    ),
    (r"(?P<set>\S+=.+) from the next step boundary on", "{set}，从下一步起生效"),
    (r"(?P<set>\S+=.+) when training starts", "{set}，训练开始时生效"),
    (r"no worker trains now: there is nothing to profile", "当前没有 worker 在训练，没有可分析的内容"),
    (
        r"a profile of the next steps, see ciuic profile RUN --show",
        "分析接下来的几步，见 ciuic profile RUN --show",
    ),
    (
        r"the workers ended before the profile was done; ask again when it trains",
        "worker 在分析完成之前结束，请在训练时再试",
    ),
    (r"asked by (?P<who>.+)", "{who} 请求"),
    (r"the run is slow: (?P<what>.+)", "任务变慢：{what}"),
    (r"a checkpoint after the next step", "下一步之后保存检查点"),
    (r"no worker trains now: there is nothing to save", "当前没有 worker 在训练，没有可保存的内容"),
    (r"no agent could keep any evidence", "没有节点代理能保存现场"),
    (r"no worker runs now: there is nothing to look at", "当前没有 worker 在运行，没有可看的内容"),
    (r"without (?P<nodes>\S+(?:, \S+)*)", "缺少 {nodes}"),
    (r"more than (?P<count>\d+) this hour", "一小时内已超过 {count} 条"),
    (r"quiet hours, or the run is silenced", "免打扰时段，或已静音"),
    (r"alert \S+ waits for its turn", "排队等候发送"),
    (r"this request does not say until when", "请求没有说明到什么时候"),
    (
        r"not answered within (?P<s>\d+) s; request (?P<id>\S+) stays open\. (?P<what>.+)",
        "{s} 秒内没有答复；请求 {id} 仍有效。{what}",
    ),
    (
        r"still pending when the time was up(?: \((?P<why>.*)\))?\. (?P<what>.+)",
        "时间已到，仍未完成（{why}）。{what}",
    ),
    (r"The run is (?P<state>\w+)(?:: (?P<what>.*))?", "任务{state}：{what}"),
    (r"waits for Slurm, for (?P<s>\d+) s at most \(--wait\)", "等待 Slurm，最多 {s} 秒（--wait）"),
    (r"waits for the job, for (?P<s>\d+) s at most \(--wait\)", "等待作业，最多 {s} 秒（--wait）"),
    (r"waits for the outcome, for (?P<s>\d+) s at most \(--wait\)", "等待结果，最多 {s} 秒（--wait）"),
    (r"no supervisor is running; doing it from here", "没有看护进程在运行，由本命令直接执行"),
    (
        r"(?P<run>\S+) belongs to uid (?P<uid>\d+), not to you; only its owner can (?P<verb>\w+) it",
        "{run} 属于 uid {uid}，不属于你；只有所有者能对它执行“{verb}”",
    ),
    (r"this request is not understood", "无法理解这个请求"),
    (r"this run is only observed \(observe_only\)", "此任务只观察（observe_only）"),
    (r"there is no open incident to acknowledge", "当前没有待确认的故障"),
    (r"acknowledged by (?P<who>[^:]+): (?P<causes>[^;]+)", "{who} 已确认：{causes}"),
    (r"not told again until a checkpoint follows a recovery", "恢复并有新检查点之前不再重复通知"),
    (r"silenced by (?P<who>[^;]+) until (?P<t>[^;]+)", "{who} 已静默到 {t}"),
    (r"what happens until then is told afterwards in one message", "期间发生的事届时合并成一条告知"),
    (r"the silence is over", "静默已结束"),
    (r"training was refused: (?P<what>.+)", "训练程序拒绝启动：{what}"),
    (r"a configuration error is never retried: (?P<what>.+)", "配置错误不会重试：{what}"),
    (
        r"the same failure (?P<n>\d+) times in a row at step (?P<step>-?\d+) \((?P<causes>[^)]+)\): (?P<what>.+)",
        "同一故障在第 {step} 步连续出现 {n} 次（{causes}）：{what}",
    ),
    (
        r"the same failure (?P<n>\d+) times in a row before the first step \((?P<causes>[^)]+)\): (?P<what>.+)",
        "同一故障在第一步之前连续出现 {n} 次（{causes}）：{what}",
    ),
    (
        r"(?P<n>\d+) failures without a new checkpoint between them \(limit (?P<max>\d+)\); the last: (?P<what>.+)",
        "{n} 次故障之间没有新的检查点（上限 {max} 次）；最近一次：{what}",
    ),
    (
        (
            r"(?P<n>\d+) infrastructure failures without a new checkpoint between them \(limit (?P<max>\d+)\); "
            r"the last: (?P<what>.+)"
        ),
        "{n} 次基础设施故障之间没有新的检查点（上限 {max} 次）；最近一次：{what}",
    ),
    (
        (
            r"several runs fail together: (?P<n>\d+) within (?P<s>\d+) s of causes that are hardly their own "
            r"\((?P<list>[^)]*)\), so their restarts are spread, at most (?P<max>\d+) at once"
        ),
        "{n} 个任务在 {s} 秒内同时出故障，多半有共同原因（{list}），重启错开进行，同时最多 {max} 个",
    ),
    (r"this one in (?P<s>\d+) s", "本任务 {s} 秒后重启"),
    (r"(?P<n>\d+) are on their way now", "现有 {n} 个正在重启"),
    (r"numerics\.on_nan = stop: .+", "numerics.on_nan = stop：出现 NaN/Inf 即停止"),
    (
        r"dropping steps did not help \(numerics\.on_nan = skip\)",
        "跳过这些步没有效果（numerics.on_nan = skip）",
    ),
    (
        r"lowering the loss scale did not help \(numerics\.on_nan = lower-scale\)",
        "降低 loss scale 没有效果（numerics.on_nan = lower-scale）",
    ),
)
_NAMED = MappingProxyType({"state": STATES, "severity": SEVERITIES, "verdict": VERDICTS, "verb": REQUESTS})
_COMPILED = tuple((re.compile(pattern, re.DOTALL), form) for pattern, form in _RULES)
_EMPTY = re.compile(r"（）|：$")


def failures_in_chinese(bodies: Iterable[Body]) -> Mapping[str, str]:
    """Reason of each recorded failure → its Chinese sentence."""
    found = {body.reason: failure_words.sentence(body, "zh") for body in bodies if isinstance(body, Judged)}
    return MappingProxyType(found)


def failures_of(history: History) -> Mapping[str, str]:
    """The same from a fold."""
    generations = (generation for attempt in history.attempts for generation in attempt.generations)
    return failures_in_chinese(item.failure for item in generations if item.failure is not None)


def chinese(reason: str, failures: Mapping[str, str]) -> str:
    """The reason in Chinese, as far as we said it; the words of others stay."""
    if reason in failures:
        return failures[reason]
    for pattern, form in _COMPILED:
        found = pattern.fullmatch(reason)
        if found:
            parts = {name: _part(name, value or "", failures) for name, value in found.groupdict().items()}
            return _EMPTY.sub("", form.format(**parts))
    return piecewise(reason, lambda part: chinese(part, failures))


def _part(name: str, value: str, failures: Mapping[str, str]) -> str:
    if name in {"what", "why"}:
        return chinese(value, failures)
    if name == "causes":
        return "、".join(word(CAUSES, item.strip(), "zh") for item in value.split(","))
    return word(_NAMED[name], value, "zh") if name in _NAMED else value
