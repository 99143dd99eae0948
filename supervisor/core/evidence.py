"""What the evidence of all nodes says, in two lines for people. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.events import EvidenceKept
from contract.evidence import NodeEvidence, WorkerEvidence
from supervisor.core.flight import Fault, Finding, findings
from supervisor.core.phrases import PHASES, word
from supervisor.core.stacks import Group, groups, some_ranks

_GROUPS = 4
_WHY_ZH = {"this program offers none": "训练程序不提供", "the process is stopped": "进程已被暂停"}
_LONGEST = 400
COLLECTIVE = "collective"  # no phase of a page: programs need not mark where they wait for each other


def digest(found: Sequence[NodeEvidence]) -> Mapping[str, str]:
    """Language → two lines: where the ranks stand; and what recorders and devices add to it. Empty: nothing is known."""
    workers = [worker for node in found for worker in node.workers if worker.os_state]
    if not workers and not any(device_troubles(gpu) for node in found for gpu in node.gpus):
        return {}
    return {language: "\n".join(_lines(found, language)) for language in ("zh", "en")}


@dataclass(frozen=True, kw_only=True)
class Accused:
    """Who kept the others waiting, and in which phase: the page's, or `collective`. Empty: the evidence does not tell."""

    ranks: tuple[int, ...] = ()
    phase: str = ""


def accused(found: Sequence[NodeEvidence]) -> Accused:
    """What no step and no phase of the pages tells: who left a collective out, or that all are stuck in the same."""
    workers = {worker.rank: worker for node in found for worker in node.workers if worker.os_state}
    told = next(iter(findings(workers.values())), None)
    stopped = _stopped(workers.values())
    if stopped and (told is None or told.fault is Fault.STUCK):
        return Accused(ranks=stopped, phase=_phase([workers[rank] for rank in stopped]))
    if told is None:
        stuck = bool(workers) and all(group.waits for group in groups(workers.values()))
        return Accused(phase=COLLECTIVE if stuck else "")
    if told.fault is Fault.STUCK:
        return Accused(phase=COLLECTIVE)
    there = [workers[rank] for rank in told.ranks if rank in workers]
    if told.fault is Fault.MISMATCH:
        return Accused(ranks=told.ranks, phase=COLLECTIVE)
    return Accused(ranks=told.ranks, phase=_phase(there))


def _phase(workers: Sequence[WorkerEvidence]) -> str:
    """`collective` when all of these are in one, else the phase that their pages agree on, else ""."""
    if workers and all(map(_waits, workers)):
        return COLLECTIVE
    phases = {worker.phase for worker in workers}
    return phases.pop() if len(phases) == 1 else ""


def _stopped(workers: Iterable[WorkerEvidence]) -> tuple[int, ...]:
    """Ranks that a signal has stopped: whoever is in a collective with them waits for them, and for no network."""
    return tuple(sorted(rank for group in groups(workers) if group.stopped for rank in group.ranks))


def _elsewhere(workers: Iterable[WorkerEvidence]) -> tuple[int, ...]:
    """Ranks whose stacks are outside the collective in which others' are."""
    found = groups(workers)
    if not any(group.waits for group in found):
        return ()
    return tuple(sorted(rank for group in found if group.known and not group.waits for rank in group.ranks))


def _waits(worker: WorkerEvidence) -> bool:
    """Whether the rank is in a collective itself: another than the one in which it is missed."""
    in_one = any(group.waits for group in groups([worker]))
    return in_one or any(not entry.done for entry in worker.collectives)


def suspicion(kept: EvidenceKept, language: str) -> str:
    """`rank 1, phase collective`; "" when the evidence accuses nobody and names no phase."""
    who, phase = some_ranks(kept.suspects) if kept.suspects else "", ""
    if kept.phase:
        words = word(PHASES, kept.phase, language)
        phase = f"{words}阶段" if language == "zh" else f"phase {words}"
    if language == "zh":
        who = who.replace("ranks", "rank")
    return ("，" if language == "zh" else ", ").join(part for part in (who, phase) if part)


def device_troubles(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    """What NVML's figures of one GPU hold against it."""
    remapped = gpu.get("remapped") or {}
    found = []
    if gpu.get("ecc_uncorrected"):
        found.append(f"{gpu['ecc_uncorrected']} uncorrectable ECC errors")
    if remapped.get("failed"):
        found.append("row remapping failed")
    elif remapped.get("pending"):
        found.append("row remapping pending")
    if gpu.get("slowdown"):
        found.append(f"slowed down ({', '.join(gpu['slowdown'])})")
    if gpu.get("recovery_action", "none") != "none":
        found.append(f"asks for: {gpu['recovery_action']}")
    return tuple(found)


def _lines(found: Sequence[NodeEvidence], language: str) -> tuple[str, str]:
    workers = [worker for node in found for worker in node.workers if worker.os_state]  # the others had ended
    parts = [_group(group, language) for group in groups(workers)]
    more = len(parts) - _GROUPS
    if more > 0:
        parts[_GROUPS:] = [f"另有 {more} 组" if language == "zh" else f"{more} more groups"]
    nothing = "没有进程可看" if language == "zh" else "no process was left to look at"
    first = ("；" if language == "zh" else "; ").join(parts) or nothing
    return first[:_LONGEST], _second(found, language)[:_LONGEST]


def _group(group: Group, language: str) -> str:
    ranks = f"{len(group.ranks)} ranks" if len(group.ranks) > 3 else some_ranks(group.ranks)
    where = f" ({group.where})" if group.where else ""
    doing = group.doing or word(PHASES, group.phase, language)
    if language == "zh":
        count = f"{len(group.ranks)} 个 rank" if len(group.ranks) > 3 else ranks.replace("ranks", "rank")
        state = "被信号暂停于 " if group.stopped else "在 "
        return f"{count} {state}{doing}{where}" + ("" if group.known else "（无调用栈）")
    state = "stopped by a signal in" if group.stopped else "in"
    return f"{ranks} {state} {doing}{where}" + ("" if group.known else " (no stack)")


def _second(found: Sequence[NodeEvidence], language: str) -> str:
    workers = [worker for node in found for worker in node.workers if worker.os_state]
    parts = [_finding(item, workers, language) for item in findings(workers)[:1]]
    if not parts:
        parts = [_no_flight(found, language)]
    for node in found:
        for gpu in node.gpus:
            if troubles := device_troubles(gpu):
                parts.append(f"{node.node} GPU {gpu.get('index', '?')}: {', '.join(troubles)}")
    return ("；" if language == "zh" else "; ").join(part for part in parts if part)


def _finding(item: Finding, workers: Sequence[WorkerEvidence], language: str) -> str:
    if item.fault is Fault.STUCK:
        return _stuck(item, workers, language)
    call, who, others = (
        f"{item.call} #{item.seq} ({item.group})",
        some_ranks(item.ranks),
        some_ranks(item.others),
    )
    zh = {
        Fault.ABSENT: f"{call}：{others} 已进入，{who} 没有",
        Fault.MISMATCH: f"集合通信不一致：{some_ranks(tuple(set(item.ranks) - set(item.others)))} 调用 "
        f"{item.instead}，{others} 调用 {call}",
    }
    en = {
        Fault.ABSENT: f"{call}: entered by {others}, not by {who}",
        Fault.MISMATCH: f"the ranks disagree: {some_ranks(tuple(set(item.ranks) - set(item.others)))} called "
        f"{item.instead}, {others} {call}",
    }
    return (zh if language == "zh" else en)[item.fault]


def _stuck(item: Finding, workers: Sequence[WorkerEvidence], language: str) -> str:
    """All that entered are still in it: because one is stopped, or stands elsewhere, before a network is suspected."""
    call, zh = f"{item.call} #{item.seq} ({item.group})", language == "zh"
    stopped, elsewhere = _stopped(workers), _elsewhere(workers)
    if stopped:
        who, waiting = some_ranks(stopped), tuple(rank for rank in item.ranks if rank not in stopped)
        others = some_ranks(waiting) if waiting else "其他 rank" if zh else "the others"
        if zh:
            return f"{call}：{others} 在等被信号暂停的 {who}"
        return f"{call}: {others} {'waits' if len(waiting) == 1 else 'wait'} for {who}, stopped by a signal"
    if elsewhere:
        who = some_ranks(elsewhere)
        return (
            f"所有 rank 都已进入 {call}，但 {who} 停在别处：先看那里"
            if zh
            else f"all ranks have entered {call}, but {who} stands elsewhere: look there first"
        )
    silent = tuple(sorted({worker.rank for worker in workers} - set(item.ranks)))
    if silent:
        who, without = some_ranks(item.ranks), some_ranks(silent)
        return (
            f"{who} 都在 {call} 中；{without} 没有飞行记录"
            if zh
            else f"{who} in {call}; {without} without a flight recorder"
        )
    return (
        f"所有 rank 都在 {call} 中：可能是网络或设备"
        if zh
        else f"all ranks are in {call}: the network or a device"
    )


def _no_flight(found: Sequence[NodeEvidence], language: str) -> str:
    """Why the recorders add nothing."""
    workers = [worker for node in found for worker in node.workers if worker.os_state]
    if any(worker.collectives for worker in workers):
        return (
            "飞行记录器：没有未完成的集合通信"
            if language == "zh"
            else "flight recorder: no collective is open"
        )
    why = next((worker.flight for worker in workers if worker.flight), "")
    if not why:
        return ""
    return f"无飞行记录：{_WHY_ZH.get(why, why)}" if language == "zh" else f"no flight recorder: {why}"
