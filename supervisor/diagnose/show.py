"""The diagnosis for people, in Chinese or English. Pure: values in, lines out."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from supervisor.core.phrases import CAUSES, word
from supervisor.diagnose.read import EMPTY, NO_LOGS, NO_TEXT, ZSTD
from supervisor.diagnose.run import Outcome
from supervisor.diagnose.verdict import Diagnosis, Why

_ZH: Mapping[str, str] = MappingProxyType(
    {
        "cause": "原因：{words}（{cls}，{name}）",
        "none": "没有失败：日志里没有什么结束了这个作业。",
        "where": "位置：{file}:{line}",
        "first": "最先出错的 rank：{rank}",
        "behind": "其他 rank 在等的：rank {rank}（它的集合通信序号最小）",
        "silent": "其他 rank 在等的：rank {rank}（只有它没有报告超时）",
        "own": "  {file}:{line} | {text}",
        "node": "应归咎的节点：{node}",
        "last": "最后几行：",
        "fix": "怎么办：{text}",
        "again": "重试：是",
        "stop": "重试：否，先处理再提交",
        "ignored": "不是原因的：",
        "problem": "读不了 {name}：{why}",
        "nothing": "没有可读的日志。",
    }
)
_EN: Mapping[str, str] = MappingProxyType(
    {
        "cause": "Cause: {words} ({cls}, {name})",
        "none": "No failure: nothing in these logs ended the job.",
        "where": "Where: {file}:{line}",
        "first": "First to fail: rank {rank}",
        "behind": "Whom the others waited for: rank {rank} (the number of its collective is the lowest)",
        "silent": "Whom the others waited for: rank {rank} (the only one that reports no timeout)",
        "own": "  {file}:{line} | {text}",
        "node": "Node to blame: {node}",
        "last": "Last lines:",
        "fix": "What to do: {text}",
        "again": "Retry: yes",
        "stop": "Retry: no, put it right first",
        "ignored": "Not the cause:",
        "problem": "cannot read {name}: {why}",
        "nothing": "There is no log that can be read.",
    }
)
_NOT_READ: Mapping[str, str] = MappingProxyType(
    {
        EMPTY: "是空的",
        NO_TEXT: "不是文本，不能当日志读",
        NO_LOGS: "目录里没有可当日志读的文件",
        ZSTD: "用 zstd 压缩，请先解压（zstd -d）",
        "No such file or directory": "没有这个文件或目录",
        "Permission denied": "没有权限",
    }
)
_WHY: Mapping[Why, tuple[str, str]] = MappingProxyType(
    {
        Why.LATER: ("came later", "发生得更晚"),
        Why.VICTIM: ("a victim of another process's failure", "其他进程出错的受害者"),
        Why.OUTLIVED: ("training went on after it", "之后训练仍在继续"),
        Why.REMARK: ("a remark, not an end", "只是提示，没有结束作业"),
        Why.ENDED_WELL: ("the job ended well after it", "之后作业正常结束"),
        Why.FOLLOWS: ("follows from the cause", "是原因带来的后果"),
    }
)


def told(outcome: Outcome, lang: str) -> Iterator[str]:
    """The lines to print."""
    words = _ZH if lang == "zh" else _EN
    if outcome.diagnosis is None:
        yield words["nothing"]
    else:
        yield from _diagnosis(outcome.diagnosis, words, lang)


def problems(outcome: Outcome, lang: str) -> Iterator[str]:
    """What could not be read."""
    words = _ZH if lang == "zh" else _EN
    for problem in outcome.problems:
        why = _NOT_READ.get(problem.why, problem.why) if lang == "zh" else problem.why
        yield words["problem"].format(name=problem.name, why=why)


def _diagnosis(found: Diagnosis, words: Mapping[str, str], lang: str) -> Iterator[str]:
    if not found.failed:
        yield words["none"]
    else:
        cause = word(CAUSES, found.cause, lang)
        yield words["cause"].format(words=cause, cls=found.cause.value, name=found.entry.name)
        yield words["where"].format(file=found.file, line=found.line)
        yield from (f"  | {line}" for line in found.text.splitlines()[:4])
        if found.suspect_rank is not None:
            yield words[found.named].format(rank=found.suspect_rank)
        if found.suspect_line:
            own = found.suspect_line
            yield words["own"].format(file=own.file, line=own.line, text=own.text.partition("\n")[0])
        if found.blame_node:
            yield words["node"].format(node=found.blame_node)
        if found.last:
            yield words["last"]
            yield from (f"  {number:>6} | {line}" for number, line in found.last)
        yield words["fix"].format(text=found.entry.zh if lang == "zh" else found.entry.en)
        yield words["again"] if found.entry.retry.again else words["stop"]
    if found.ignored:
        yield words["ignored"]
        for item in found.ignored:
            yield f"  {item.file}:{item.line} {item.name}: {_WHY[item.why][lang == 'zh']}"
