"""The report's words. Data only."""

from collections.abc import Mapping
from types import MappingProxyType

TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "report": ("Report", "报告"),
        "life": ("Life of the run", "任务全程"),
        "effective": ("effective training time", "有效训练时间"),
        "definition": (
            (
                "Effective training time = 1 − lost / elapsed. Elapsed: from each job's start of the workers to its "
                "end. Lost: until faults were noticed, until the first step after them, and steps that were done twice, "
                "at the run's usual pace. Time in the queue counts on neither side."
            ),
            (
                "有效训练时间 = 1 − 损失 / 总时长。总时长：每个作业从 worker 启动到结束。损失：发现故障、恢复到下一步、"
                "以及按平时速度计算的重复步数所用的时间。排队时间两边都不计。"
            ),
        ),
        "steps": ("steps", "步数"),
        "elapsed": ("with a job", "占用作业"),
        "queue": ("in the queue", "排队"),
        "lost": ("lost", "损失"),
        "faults": ("faults", "故障"),
        "jobs": ("jobs", "作业"),
        "starts": ("starts of the workers", "worker 启动"),
        "longest": ("longest stretch without a fault", "最长无故障时长"),
        "detection": ("detection", "发现"),
        "restart": ("restart", "重启"),
        "repeated": ("steps done twice", "重复步数"),
        "median-detection": ("median detection", "发现时间中位数"),
        "median-restart": ("median restart", "重启时间中位数"),
        "made": ("made {at} by ciuic {version}; times are UTC", "{at} 由 ciuic {version} 生成；时间为 UTC"),
        "lane-jobs": ("jobs", "作业"),
        "lane-workers": ("workers", "训练进程"),
        "lane-verdicts": ("verdicts", "判定"),
        "lane-checkpoints": ("saves", "检查点"),
        "phase-queue": ("in the queue", "排队"),
        "phase-start": ("starting", "启动"),
        "phase-train": ("training", "训练"),
        "phase-stalled": ("stalled, not noticed yet", "停滞，尚未发现"),
        "phase-restart": ("ended, being restarted", "已中断，等待重启"),
        "loss": ("Loss", "损失"),
        "loss-train": ("training", "训练"),
        "loss-validation": ("validation", "验证"),
        "loss-again": ("done again later", "之后重做的步"),
        "norm": ("Gradient norm, before clipping", "梯度范数（裁剪前）"),
        "rate": ("Learning rate", "学习率"),
        "rate-first": ("embedding", "嵌入层"),
        "rate-last": ("last layer and head", "最后一层与输出头"),
        "throughput": ("Tokens a second", "每秒 token 数"),
        "batch": ("Global batch, samples", "全局批大小（样本）"),
        "micro": ("Micro-steps in a step", "每步微批次数"),
        "buckets": (
            (
                "{rows} steps in buckets of {width}; the band reaches from the least to the greatest value, the line is "
                "the mean. Dotted: where a generation resumed."
            ),
            "{rows} 步，每 {width} 步一格；色带为最小到最大值，线为均值。虚线：恢复位置。",
        ),
        "not-finite": (
            "{count} steps with a loss that is not finite (red at the top)",
            "{count} 步的损失非有限（顶部红色标记）",
        ),
        "dropped": ("{count} steps dropped without an update", "{count} 步被丢弃，未更新"),
        "no-metrics": ("There are no metrics of this run.", "该任务没有指标。"),
        "lost-by-cause": ("Lost time by cause", "按原因统计的损失时间"),
        "cause": ("cause", "原因"),
        "time": ("time", "时间"),
        "sum": ("sum", "合计"),
        "all-faults": ("Faults", "故障"),
        "attempt": ("attempt", "作业次数"),
        "generation": ("generation", "启动"),
        "job": ("job", "作业号"),
        "nodes": ("nodes", "节点"),
        "from-step": ("from step", "起始步"),
        "to-step": ("to step", "终止步"),
        "verdict": ("verdict", "判定"),
        "reason": ("reason", "原因说明"),
        "suspects": ("suspects", "嫌疑"),
        "why-started": ("why it was started", "启动原因"),
        "evidence": ("evidence", "证据"),
        "lines": ("last lines", "末尾日志"),
        "all-starts": ("Jobs and starts", "作业与启动"),
        "notices": ("Noticed", "注意到"),
        "batch-changes": ("Changes of the batch plan", "批计划变更"),
        "step": ("step", "步"),
        "profiles": ("Profiles", "性能分析"),
        "where-time-went": ("where the time of a step went", "一步的时间去向"),
        "saved": ("Checkpoints", "检查点"),
        "alerts": (
            "Alerts: {sent} sent, {pending} pending, {failed} failed",
            "告警：已发 {sent}，待发 {pending}，失败 {failed}",
        ),
        "cut": ("{count} more are in the data of this page", "另有 {count} 条，见页内数据"),
        "none": ("none", "无"),
    }
)


def say(key: str, language: str, **values: object) -> str:
    """The text in this language."""
    return TEXTS[key][1 if language == "zh" else 0].format(**values)
