"""The page's words, for what is painted here and for what the browser writes. Data only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from supervisor.core.phrases import CAUSES, PHASES, VERDICTS, Words
from supervisor.page.ranks import BEHIND, ENDED, FAILED, GOING, STILL, STOPPED, SUSPECT, UNHEARD
from supervisor.report.words import TEXTS as REPORT
from supervisor.words import STATES

Pair = list[str]

_TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "all-runs": ("All runs", "所有任务"),
        "no-runs": ("There is no run here yet.", "这里还没有任务。"),
        "no-such-run": ("There is no run {run}.", "没有任务 {run}。"),
        "loading": ("Loading …", "正在加载……"),
        "live": ("live, seen {age} ago", "实时，{age}前的画面"),
        "late": (
            "The supervisor's newest look is {age} old: it is slow, or its files do not answer.",
            "看护进程最近一次查看是 {age}前：它变慢了，或者文件没有响应。",
        ),
        "gone": (
            "The supervisor does not answer. This picture is {age} old; the jobs go on without it. Trying again.",
            "看护进程没有应答。画面停在 {age}前；作业不受影响，继续运行。正在重试。",
        ),
        "denied": (
            "The supervisor asks for the token again: open the link that contains it.",
            "看护进程再次要求令牌：请打开含令牌的链接。",
        ),
        "over": ("left alone, nothing is looked at", "不再看护"),
        "other-language": ("中文", "English"),
        "pause": ("Hold still", "暂停刷新"),
        "go-on": ("Go on", "继续刷新"),
        "filter": ("Filter by name or reason", "按名称或原因筛选"),
        "group-needs": ("needs you", "需人工处理"),
        "group-bad": ("failing", "故障"),
        "group-acting": ("recovering", "恢复中"),
        "group-watch": ("look at it", "需留意"),
        "group-ok": ("training", "训练中"),
        "group-waiting": ("waiting", "等待中"),
        "group-done": ("over", "已结束"),
        "run": ("run", "任务"),
        "state": ("state", "状态"),
        "step": ("step", "步数"),
        "progress": ("last progress", "最近进展"),
        "tokens-per-s": ("tokens/s", "token/秒"),
        "checkpoint": ("checkpoint", "检查点"),
        "faults": ("faults", "故障"),
        "seen": ("looked at", "查看于"),
        "reason": ("reason", "原因"),
        "since": ("since {at}", "自 {at} 起"),
        "ago": ("{age} ago", "{age}前"),
        "in": ("in {age}", "{age}后"),
        "evidence": ("Evidence", "依据"),
        "next": ("Next", "接下来"),
        "more": ("More", "详情"),
        "copy": ("copy", "复制"),
        "copied": ("copied", "已复制"),
        "page-live": (
            "{ranks} ranks are alive; the one that moved least lately did so {idle} s ago",
            "{ranks} 个 rank 存活；其中最久没有动静的在 {idle} 秒前有进展",
        ),
        "page-queue": (
            "The supervisor cannot ask the queue: {why}. It restarts in place; no job is submitted or ended.",
            "看护进程问不到作业队列：{why}。原地重启照常；不提交也不取消作业。",
        ),
        "page-acknowledged": ("Acknowledged by {by}", "{by} 已确认"),
        "job": ("job", "作业"),
        "start": ("start", "启动"),
        "nodes": ("nodes", "节点"),
        "ranks": ("ranks", "rank 数"),
        "step-time": ("step time", "单步时间"),
        "usual": ("usual {seconds}", "平时 {seconds}"),
        "lr-one": ("last layer and head", "最后一层与输出头"),
        "reading": ("reading older metrics: {mb} MB to go", "正在读取较早的指标：还剩 {mb} MB"),
        "ends-here": ("steps done again later: {count}", "之后重做的步数：{count}"),
        "whole-run": ("whole run", "全程"),
        "last-part": ("last tenth", "最后十分之一"),
        "values": ("Values", "数值"),
        "rank-map": ("Ranks", "各 rank"),
        "colour-by": ("Colour by", "着色"),
        "by-doing": ("what they do", "状态"),
        "by-still": ("time without progress", "无进展时间"),
        "by-behind": ("steps behind", "落后步数"),
        "by-phase": ("phase", "阶段"),
        "map-help": (
            "One cell a rank, one row or column group a node. Arrow keys move, the line below tells the rank.",
            "每格一个 rank，按节点排列。方向键移动，下方显示该 rank。",
        ),
        "map-cell": (
            "rank {rank} on {node}: {what}",
            "{node} 上的 rank {rank}：{what}",
        ),
        f"doing-{FAILED}": ("failed", "已失败退出"),
        f"doing-{SUSPECT}": ("suspect", "嫌疑"),
        f"doing-{STOPPED}": ("stopped by a signal", "被信号暂停"),
        f"doing-{UNHEARD}": ("not heard of", "没有消息"),
        f"doing-{STILL}": ("no progress for half of its limit", "无进展超过上限的一半"),
        f"doing-{BEHIND}": ("behind the others", "落后"),
        f"doing-{ENDED}": ("ended well", "正常退出"),
        f"doing-{GOING}": ("moves", "前进中"),
        "still-4": ("beyond its limit", "超过上限"),
        "still-share": ("{share} of its limit", "上限的 {share}"),
        "behind-by": ("{steps} steps behind", "落后 {steps} 步"),
        "not-behind": ("with the others", "同步"),
        "unknown": ("not told", "未知"),
        "moves-on": ("moves", "前进中"),
        "pid": ("pid", "pid"),
        "node": ("node", "节点"),
        "rank": ("rank", "rank"),
        "phase": ("phase", "阶段"),
        "idle": ("no progress for", "无进展"),
        "all-move": ("All {count} ranks move.", "{count} 个 rank 都在前进。"),
        "no-ranks": ("No worker is heard of.", "没有 worker 的消息。"),
        "track": ("Nodes over time", "各节点随时间的变化"),
        "track-note": (
            "Since {from}, a column every ten seconds, nodes a row: {each}, the worst of their ranks. Rows that were odd: {odd}",
            "自 {from} 起，每十秒一列，每行 {each} 个节点，取其中最差的 rank。出现过异常的行：{odd}",
        ),
        "stacks": ("Who waits for whom", "谁在等谁"),
        "stacks-of": ("kept at the failure of {name}", "第 {name} 次启动故障时的现场"),
        "doing": ("in", "所在函数"),
        "where": ("at", "位置"),
        "incidents": ("Incidents", "故障"),
        "no-incidents": ("Nothing has failed yet.", "还没有发生故障。"),
        "suspects": ("suspects", "嫌疑"),
        "detected": ("noticed after", "发现用时"),
        "restarted": ("restarted in", "恢复用时"),
        "repeated": ("steps done twice", "重复步数"),
        "lines": ("First bad lines", "首批异常日志"),
        "notices": ("Noticed while training goes on", "训练中注意到的问题"),
        "lasting": ("lasts", "仍在持续"),
        "checkpoints": ("Checkpoints", "检查点"),
        "changed": ("What changed between the jobs", "各次作业之间的变化"),
        "before-job": ("job", "作业"),
        "setting": ("setting", "设置"),
        "by-whom": ("by", "操作人"),
        "at": ("time", "时间"),
        "story": ("What happened", "经过"),
        "effective": ("effective training time", "有效训练时间"),
        "alerts": ("alerts sent / waiting / failed", "告警 已发/待发/失败"),
        "zone": ("times of this browser: {zone}", "时间按浏览器时区：{zone}"),
        "help": (
            "Keys: / filters, j and k move through the rows, Enter opens, g goes to all runs, p holds the picture still.",
            "按键：/ 筛选，j、k 上下移动，Enter 打开，g 回到所有任务，p 暂停刷新。",
        ),
        "narrower": (
            "click and drag to look closer, double-click or Esc for everything",
            "拖动可放大，双击或 Esc 还原",
        ),
    }
)
_FROM_REPORT = (
    "life",
    "loss",
    "loss-train",
    "loss-validation",
    "loss-again",
    "norm",
    "rate",
    "rate-first",
    "rate-last",
    "throughput",
    "batch",
    "micro",
    "buckets",
    "not-finite",
    "dropped",
    "no-metrics",
    "lane-jobs",
    "lane-workers",
    "lane-verdicts",
    "lane-checkpoints",
    "phase-queue",
    "phase-start",
    "phase-train",
    "phase-stalled",
    "phase-restart",
    "batch-changes",
)


def said(key: str, **values: object) -> Pair:
    """The text in English and in Chinese."""
    return [form.format(**values) for form in _TEXTS[key]]


def catalogue() -> dict[str, Any]:
    """Everything that the browser says, each as [English, Chinese]."""
    texts = {**{key: REPORT[key] for key in _FROM_REPORT}, **_TEXTS}
    return {
        "texts": {key: list(pair) for key, pair in texts.items()},
        "states": {key: [english, zh, glyph] for key, (english, zh, glyph, _) in STATES.items()},
        "verdicts": _turned(VERDICTS),
        "causes": _turned(CAUSES),
        "phases": _turned(PHASES),
    }


def _turned(words: Words) -> dict[str, Pair]:
    return {key: [english, zh] for key, (zh, english) in words.items()}
