"""Words and colours for people. What machines read (JSON, journal, exit codes) stays English."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from contract.language import LANGUAGES

# Run state → (English, Chinese, glyph, style). The style says what the reader should do, not which state it is.
STATES: Mapping[str, tuple[str, str, str, str]] = MappingProxyType(
    {
        "pending": ("Queued", "排队中", "○", "dim"),
        "starting": ("Starting", "启动中", "◔", "dim"),
        "paused": ("Paused by user", "已暂停", "‖", "dim"),
        "running": ("Training", "训练中", "●", "green"),
        "recovering": ("Recovering", "恢复中", "↻", "cyan"),
        "unknown": ("Cannot observe", "无法观测", "?", "yellow"),
        "failed": ("Failed", "已失败", "⚑", "bold magenta"),
        "completed": ("Finished", "已完成", "✔", "dim"),
        "cancelled": ("Cancelled by user", "已取消", "–", "dim"),
    }
)
# Who needs a person first stands first.
ORDER = (
    "failed",
    "unknown",
    "recovering",
    "running",
    "starting",
    "pending",
    "paused",
    "completed",
    "cancelled",
)

TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "run": ("run", "任务"),
        "state": ("state", "状态"),
        "step": ("step", "步数"),
        "attempt": ("attempt", "作业次数"),
        "checkpoint": ("checkpoint", "检查点"),
        "alerts": ("alerts", "告警"),
        "reason": ("reason", "原因"),
        "rank": ("rank", "rank"),
        "node": ("node", "节点"),
        "phase": ("phase", "阶段"),
        "count": ("ranks", "数量"),
        "loss": ("loss", "损失"),
        "tokens-per-s": ("tokens/s", "token/秒"),
        "over-steps": ("(steps {first} to {last})", "（第 {first} 到 {last} 步）"),
        "job": ("job", "作业号"),
        "nodes": ("nodes", "节点"),
        "generations": ("generations", "启动次数"),
        "valid": ("valid", "有效"),
        "where": ("where", "位置"),
        "local": ("here", "本地"),
        "mirror": ("mirror", "镜像"),
        "backup": ("backup", "备份"),
        "copy": ("{kind}: step {step} at {where}", "{kind}：第 {step} 步，{where}"),
        "copy-behind": ("something newer waits since {age}", "有更新的检查点已等待 {age}"),
        "unreadable": ("{where} cannot be read: {why}", "无法读取 {where}：{why}"),
        "none": ("No runs under {place}.", "{place} 下没有任务。"),
        "watching": (
            "Supervisor: pid {pid} on {host} since {since}",
            "看护进程：{host} 上的 pid {pid}，始于 {since}",
        ),
        "unwatched": (
            "No supervisor is running for {place}; start one with: {ciuic} supervise --root {quoted}",
            "{place} 没有看护进程在运行；启动：{ciuic} supervise --root {quoted}",
        ),
        "stale": (
            "nobody watches this run (no supervisor on this machine); its last record is {age} old",
            "没有看护进程在看这个任务（本机上没有）；最近的记录写于 {age}前",
        ),
        "alert-counts": (
            "{sent} sent, {pending} pending, {failed} failed",
            "已发 {sent}，待发 {pending}，失败 {failed}",
        ),
        "alert-column": ("alerts sent/pending/failed", "告警 已发/待发/失败"),
        "acknowledged": (
            "Acknowledged by {by} at {at}: not told again until it is over",
            "{by} 已于 {at} 确认：解决前不再重复通知",
        ),
        "silenced": ("Silenced by {by} until {until}", "{by} 已静默到 {until}"),
        "held-back": ("Held back: {why}, next in {wait}", "暂缓发送：{why}，{wait}后发下一条"),
        "no-alerts": ("Alerts are not delivered: {why}", "告警未送达：{why}"),
        "delivered": ("{name}: delivered", "{name}：已送达"),
        "not-delivered": ("{name}: NOT delivered: {why}", "{name}：未送达：{why}"),
        "no-receiver": (
            "[alerts] names no receiver: nobody will be told anything",
            "[alerts] 中没有接收方：不会通知任何人",
        ),
        "exported": (
            "step {step}, {size:,.1f} MB in {dtype}, {tokenizer}: {path}",
            "第 {step} 步，{size:,.1f} MB（{dtype}），{tokenizer}：{path}",
        ),
        "with-tokenizer": ("with its tokenizer", "含分词器"),
        "no-tokenizer": (
            "without tokenizer files (the data is plain bytes)",
            "不含分词器文件（数据是纯字节）",
        ),
        "observed": (
            "Only observed (observe_only): judged and told, nothing is done",
            "只观察（observe_only）：只判断和通知，不处理",
        ),
        "damaged": ("The journal has a damaged line, skipped: {what}", "运行日志有损坏的行，已跳过：{what}"),
        "no-checkpoints": ("There is no checkpoint yet.", "还没有检查点。"),
        "size": ("size", "大小"),
        "age": ("age", "多久前"),
        "val_loss": ("val loss", "验证损失"),
        "unsaved": ("Checkpoints cannot be written: {why}", "检查点写不下去：{why}"),
        "queue-silent": (
            (
                "The supervisor has not been able to ask the queue since {at}: {why}. It restarts in place; no job is"
                " submitted or ended before the queue answers."
            ),
            "看护进程自 {at} 起问不到作业队列：{why}。原地重启照常；队列应答之前不会提交或取消作业。",
        ),
        "now": ("Now: {text}", "现在：{text}"),
        "next": ("Next: {text}", "接下来：{text}"),
        "once-supervised": (
            "{what}; once a supervisor runs: {ciuic} supervise --root {root}",
            "{what}；需要先启动看护进程：{ciuic} supervise --root {root}",
        ),
        "nothing": ("nothing to do", "无事可做"),
        "slurm-silent": (
            "Slurm does not answer ({why}): this is told from the files alone",
            "Slurm 没有应答（{why}）：以上只根据文件",
        ),
        "held": (
            "somebody must release the job, or cancel it: {ciuic} cancel {run}",
            "需要有人放行作业，或取消：{ciuic} cancel {run}",
        ),
        "never-starts": (
            (
                "as it was asked for the job never starts: cancel it ({ciuic} cancel {run}), or ask for fewer nodes or less"
                " time (cancel it, then {ciuic} resume {run} --set job.nodes=N)"
            ),
            (
                "按现在的要求作业永远不会开始：取消（{ciuic} cancel {run}），或减少节点或时限"
                "（先取消，再 {ciuic} resume {run} --set job.nodes=N）"
            ),
        ),
        "fix": ("mend the cause, then: {ciuic} resume {run}", "排除原因后：{ciuic} resume {run}"),
        "Submit": ("submit an attempt", "提交作业"),
        "Prepare": ("restart in place", "原地重启"),
        "Go": ("start the workers", "启动 worker"),
        "PassOn": ("pass on what was set", "下发设置"),
        "TakeEvidence": ("keep where the workers stand", "保存现场证据"),
        "SaveAndLeave": ("save and leave", "保存并离开"),
        "Cancel": ("end the job", "结束作业"),
        "CloseAttempt": ("record the job's end", "记录作业结束"),
        "Reconfigure": ("change the settings", "修改配置"),
        "SetState": ("record the state", "记录状态"),
        "SetBounds": ("roll back", "回滚"),
        "Answer": ("answer a request", "答复请求"),
        "Tell": ("tell people", "通知"),
        "Wait": ("wait", "等待"),
    }
)


def command_name() -> str:
    """How the reader can call us: `ciuic` where it is on PATH, else the path of this environment's."""
    return "ciuic" if shutil.which("ciuic") else str(Path(sys.executable).parent / "ciuic")


def text(key: str, lang: str, **values: object) -> str:
    return TEXTS[key][LANGUAGES.index(lang)].format(**values)


def state_label(state: str, lang: str) -> str:
    """Glyph and word of a run's state."""
    english, chinese, glyph, _ = STATES.get(state, STATES["unknown"])
    return f"{glyph} {chinese if lang == 'zh' else english}"


def state_style(state: str) -> str:
    return STATES.get(state, STATES["unknown"])[3]
