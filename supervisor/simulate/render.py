"""The result for people, in English or Chinese."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from supervisor.simulate.presets import Preset
from supervisor.simulate.results import DEFINITION, Change

# Cause → (English, Chinese).
LOSSES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "detection": ("faults not seen yet", "故障尚未发现"),
        "restart": ("restart in place", "原地重启"),
        "load": ("loading the checkpoint", "加载检查点"),
        "start": ("start of a new job", "新作业启动"),
        "repeated": ("steps done again", "重复训练的步"),
        "checkpoint": ("standstill of saves", "保存检查点的停顿"),
        "ending": ("the old job ends", "等旧作业结束"),
        "queue": ("in the queue", "排队"),
        "nodes": ("waiting for nodes in repair", "等节点修复"),
        "backoff": ("wait before a restart", "重启前的等待"),
        "stopped": ("given up, until a person resumes", "已停止，等人恢复"),
        "slow": ("drag of slow nodes", "慢节点拖累"),
        "planned": ("planned stops", "计划内停机"),
    }
)
_TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "head": (
            "{nodes} nodes × {gpus} GPUs, {spares} spare, {days:g} days, {replicas} replicas, seed {seed}",
            "{nodes} 个节点 × {gpus} 卡，备用 {spares} 个，{days:g} 天，{replicas} 次重复，种子 {seed}",
        ),
        "ettr": (
            "Effective training time: {ettr:.2%} (± {sd:.2%}; from {least:.2%} to {most:.2%})",
            "有效训练时间：{ettr:.2%}（± {sd:.2%}；{least:.2%} 至 {most:.2%}）",
        ),
        "expected": ("Closed form with these means: {expected:.2%}", "同样均值下的解析解：{expected:.2%}"),
        "with-spares": (
            "With the idle spare nodes as a loss: {ettr:.2%}",
            "把空闲的备用节点也算作损失：{ettr:.2%}",
        ),
        "definition": (
            DEFINITION,
            "有用时间 / 总时间，从第一步算起；有用指恢复后不再重做的训练，排队时间算作损失",
        ),
        "published": ("Published: {text}", "公开数字：{text}"),
        "faults": (
            "{count:.0f} faults ({kinds}); {in_place:.0f} restarts in place, {jobs:.0f} jobs, given up {gave_up:.1f} times",
            "{count:.0f} 次故障（{kinds}）；原地重启 {in_place:.0f} 次，作业 {jobs:.0f} 个，放弃 {gave_up:.1f} 次",
        ),
        "lost": ("Lost time, {hours:,.0f} GPU-hours:", "损失的时间，共 {hours:,.0f} 卡时："),
        "bottleneck": ("Bottleneck: {name}, {share:.2%}: {what}", "瓶颈：{name}，{share:.2%}：{what}"),
        "changes": ("One number changed:", "只改一个数："),
    }
)

# What was changed, in Chinese; names of settings stay.
_CHANGES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"save every (\d+) s", r"每 \1 秒保存一次"),
        (r"save every (\d+) s \(auto\)", r"每 \1 秒保存一次（自动）"),
        (r"(\w+) halved", r"\1 减半"),
        (r"half as many faults", "故障减半"),
        (r"twice as many faults", "故障加倍"),
        (r"hangs seen after (\d+) s \(PyTorch's time-out\)", r"卡住 \1 秒后才发现（PyTorch 的超时）"),
        (r"(\d+) spare nodes", r"备用节点 \1 个"),
    )
)


def changed(what: str, lang: str) -> str:
    """What was changed, in the reader's language."""
    if lang != "zh":
        return what
    found = ((pattern.fullmatch(what), form) for pattern, form in _CHANGES)
    return next((match.expand(form) for match, form in found if match), what)


def lines(facts: Mapping[str, Any], changes: Iterable[Change], published: str, lang: str) -> list[str]:
    """The report."""
    which, inputs, counts = int(lang == "zh"), facts["inputs"], facts["counts"]

    def say(key: str, **values: object) -> str:
        return _TEXTS[key][which].format(**values)

    spread, kinds = facts["spread"], facts["faults"]
    head = {name: inputs[name] for name in ("nodes", "spares", "days")}
    found = [
        say("head", **head, gpus=inputs["gpus_per_node"], replicas=facts["replicas"], seed=facts["seed"]),
        say("ettr", ettr=facts["ettr"], sd=spread["sd"], least=spread["min"], most=spread["max"]),
        f"  = {say('definition')}",
    ]
    if inputs["spares"]:
        found.append(say("with-spares", ettr=facts["ettr_with_spares"]))
    if published:
        found.append(say("published", text=published))
    if facts["expected"] is not None:
        found.append(say("expected", expected=facts["expected"]))
    found.append(
        say(
            "faults",
            count=sum(kinds.values()),
            kinds=", ".join(f"{kind} {number:.0f}" for kind, number in kinds.items()) or "-",
            in_place=counts["restarts_in_place"],
            jobs=counts["jobs"],
            gave_up=counts["gave_up"],
        )
    )
    found += _lost(facts, which)
    if changes:
        found.append(say("changes"))
        found += [
            f"  {change.gain * 100:+7.3f} pp  {change.ettr:.2%}  {changed(change.what, lang)}"
            for change in changes
        ]
    return found


def _lost(facts: Mapping[str, Any], which: int) -> list[str]:
    """Where the time went, the most first, and what that says."""
    found = [_TEXTS["lost"][which].format(hours=facts["gpu_hours_lost"])]
    for loss, share in sorted(facts["loss_shares"].items(), key=lambda item: -item[1]):
        if share:
            found.append(f"  {share:8.3%}  {facts['losses'][loss] / 3600:10.1f} h  {LOSSES[loss][which]}")
    worst = facts["bottleneck"]
    if worst["share"]:
        name = LOSSES[worst["cause"]][which]
        found.append(_TEXTS["bottleneck"][which].format(name=name, share=worst["share"], what=worst["what"]))
    return found


def catalogue(known: Iterable[Preset]) -> list[str]:
    """The presets with what they are and where their figures come from."""
    found = []
    for preset in known:
        found.append(f"{preset.name}: {preset.about}")
        if preset.published:
            found.append(f"    published: {preset.published}")
        found += [f"    source: {source}" for source in preset.sources]
        found += [f"    assumed: {text}" for text in preset.assumed]
    return found
